// Standin simulates what a KubeVirt installation needs a node for, so that the real virt-api and virt-controller can run
// VirtualMachines without one: the node itself, the scheduler, the kubelet, a storage provisioner and virt-handler.
// No guest runs. README.md describes what is simulated.
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"kubevirt.io/client-go/kubecli"
)

// World is the context of all parts: the name of the node, the clients, and the loops that wake each other.
type world struct {
	node string
	// For kubelet, scheduler and provisioner, with the permissions of an administrator.
	kubernetes kubernetes.Interface
	// For virt-handler, with its own service account: the webhooks only allow this account to write the status of an instance.
	handler kubecli.KubevirtClient

	pods      *loop
	instances *loop
	claims    *loop
	volumes   *loop
	classes   cache.Store
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig of an administrator")
	handlerKubeconfig := flag.String("handler-kubeconfig", "", "kubeconfig of the service account kubevirt-handler")
	node := flag.String("node", "standin", "name of the simulated node")
	flag.Parse()
	log.SetFlags(log.Ltime | log.Lmicroseconds)

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *kubeconfig, *handlerKubeconfig, *node); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, kubeconfig, handlerKubeconfig, node string) error {
	administrator, err := clientConfig(kubeconfig)
	if err != nil {
		return err
	}
	handler, err := clientConfig(handlerKubeconfig)
	if err != nil {
		return err
	}
	w := &world{node: node}
	if w.kubernetes, err = kubernetes.NewForConfig(administrator); err != nil {
		return err
	}
	if w.handler, err = kubecli.GetKubevirtClientFromRESTConfig(handler); err != nil {
		return err
	}
	if err := w.createStorageClasses(ctx); err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(w.kubernetes, 0)
	core := factory.Core().V1()
	w.pods = newLoop("pod", w.podInformer(), w.reconcilePod)
	w.instances = newLoop("instance", w.instanceInformer(), w.reconcileInstance)
	w.claims = newLoop("claim", core.PersistentVolumeClaims().Informer(), w.reconcileClaim)
	w.volumes = newLoop("volume", core.PersistentVolumes().Informer(), w.reconcileVolume)
	classes := factory.Storage().V1().StorageClasses().Informer()
	w.classes = classes.GetStore()
	loops := []*loop{w.pods, w.instances, w.claims, w.volumes}
	dataVolumes, err := w.dataVolumeLoop(ctx, administrator)
	if err != nil {
		return err
	}
	if dataVolumes != nil {
		loops = append(loops, dataVolumes)
	}
	go classes.RunWithContext(ctx)
	synced := []cache.InformerSynced{classes.HasSynced}
	for _, loop := range loops {
		go loop.informer.RunWithContext(ctx)
		synced = append(synced, loop.informer.HasSynced)
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return ctx.Err()
	}
	for _, loop := range loops {
		loop.start(ctx)
	}
	// Last, so that a Ready node means that everything is running.
	return w.keepNode(ctx)
}

func clientConfig(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	// High client-side rate limits, so that tests never wait for the stand-in.
	config.QPS, config.Burst = 500, 1000
	return config, nil
}
