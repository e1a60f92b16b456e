// Informer watches the ConfigMaps of one namespace with client-go, as most controllers do, and prints one line per event.
// It exits after the requested number of events.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "path of the kubeconfig file")
	namespace := flag.String("namespace", "default", "namespace to watch")
	count := flag.Int("count", 1, "number of events after which to exit")
	limit := flag.Duration("limit", time.Minute, "maximum time to wait for the events")
	flag.Parse()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		fail(err)
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		fail(err)
	}
	events := make(chan string, *count+16)
	report := func(what string, object any) {
		if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = unknown.Obj
		}
		events <- fmt.Sprintf("%s %s", what, object.(*corev1.ConfigMap).Name)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(clients, 0, informers.WithNamespace(*namespace))
	informer := factory.Core().V1().ConfigMaps().Informer()
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { report("added", object) },
		UpdateFunc: func(_, object any) { report("updated", object) },
		DeleteFunc: func(object any) { report("deleted", object) },
	})
	if err != nil {
		fail(err)
	}
	stop := make(chan struct{})
	defer close(stop)
	factory.Start(stop)
	if !cache.WaitForCacheSync(stop, informer.HasSynced) {
		fail(fmt.Errorf("the cache did not sync"))
	}
	fmt.Println("synced")
	timeout := time.After(*limit)
	for seen := 0; seen < *count; seen++ {
		select {
		case event := <-events:
			fmt.Println(event)
		case <-timeout:
			fail(fmt.Errorf("received only %d of %d events", seen, *count))
		}
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "informer:", err)
	os.Exit(1)
}
