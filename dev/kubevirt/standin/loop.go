package main

import (
	"context"
	"log"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

const workers = 8

// Loop calls a function for every object that changed. It retries after an error and never runs concurrently for one
// object.
type loop struct {
	name     string
	informer cache.SharedIndexInformer
	queue    workqueue.TypedRateLimitingInterface[string]
	do       func(ctx context.Context, key string) error
}

func newLoop(name string, informer cache.SharedIndexInformer, do func(context.Context, string) error) *loop {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](20*time.Millisecond, 5*time.Second)
	l := &loop{name: name, informer: informer, queue: workqueue.NewTypedRateLimitingQueue(limiter), do: do}
	add := func(object any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
			l.queue.Add(key)
		}
	}
	// It only fails for a stopped informer, and this one has not started yet.
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    add,
		UpdateFunc: func(_, object any) { add(object) },
		DeleteFunc: add,
	})
	return l
}

func (l *loop) start(ctx context.Context) {
	go func() {
		<-ctx.Done()
		l.queue.ShutDown()
	}()
	for range workers {
		go func() {
			for l.next(ctx) {
			}
		}()
	}
}

func (l *loop) next(ctx context.Context) bool {
	key, stopped := l.queue.Get()
	if stopped {
		return false
	}
	defer l.queue.Done(key)
	err := l.do(ctx, key)
	if err == nil || ctx.Err() != nil {
		l.queue.Forget(key)
		return true
	}
	// Conflict and NotFound only mean that the cache is stale.
	if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		log.Printf("%s %s: %v", l.name, key, err)
	}
	l.queue.AddRateLimited(key)
	return true
}

// Get returns the cached object of a key, or nil if it does not exist.
func get[T any](l *loop, key string) *T {
	object, exists, err := l.informer.GetStore().GetByKey(key)
	if err != nil || !exists {
		return nil
	}
	found, _ := object.(*T)
	return found
}
