// Manifests prints the objects that virt-operator would create to install KubeVirt, taken from the packages of the
// operator, as YAML for `kubectl apply --server-side`:
//
//	manifests crds        custom resource definitions
//	manifests accounts    namespace, service accounts, roles and bindings
//	manifests webhooks    admission webhooks that call --url instead of a Service
//	manifests apiservices the subresource API (start, stop, restart …), behind a Service that is an alias of --url
//
// The webhooks fail closed, so they are applied last, once virt-api responds.
package main

import (
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	virtv1 "kubevirt.io/api/core/v1"
	"kubevirt.io/client-go/log"
	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/components"
	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/install"
	operatorutil "kubevirt.io/kubevirt/pkg/virt-operator/util"
	"sigs.k8s.io/yaml"
)

func main() {
	namespace := flag.String("namespace", "kubevirt", "namespace KubeVirt is installed in")
	base := flag.String("url", "", "URL of virt-api, such as https://127.0.0.1:1234")
	caFile := flag.String("ca-file", "", "PEM file of the CA that signed virt-api's certificate")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: manifests [flags] crds|accounts|webhooks|apiservices")
		flag.PrintDefaults()
	}
	flag.Parse()
	objects, err := manifests(flag.Arg(0), *namespace, *base, *caFile)
	if err == nil {
		err = print(objects)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "manifests:", err)
		os.Exit(1)
	}
}

func manifests(part, namespace, base, caFile string) ([]runtime.Object, error) {
	// The packages log warnings about parts of a deployment that are not used here.
	log.Log.SetIOWriter(io.Discard)
	kubevirt := &virtv1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}}
	strategy, err := install.GenerateCurrentInstallStrategy(operatorutil.GetTargetConfigFromKV(kubevirt), "", namespace)
	if err != nil {
		return nil, err
	}
	switch part {
	case "crds":
		return crds(strategy)
	case "accounts":
		return accounts(strategy, namespace), nil
	case "webhooks":
		ca, err := os.ReadFile(caFile)
		if err != nil {
			return nil, fmt.Errorf("failed to read --ca-file: %w", err)
		}
		return webhooks(strategy, base, ca)
	case "apiservices":
		ca, err := os.ReadFile(caFile)
		if err != nil {
			return nil, fmt.Errorf("failed to read --ca-file: %w", err)
		}
		return apiServices(strategy, namespace, base, ca)
	}
	return nil, fmt.Errorf("unknown part %q: use crds, accounts, webhooks or apiservices", part)
}

func crds(strategy *install.Strategy) ([]runtime.Object, error) {
	// The KubeVirt CRD is installed with the operator, so it is not among the CRDs that the operator installs.
	kubevirt, err := components.NewKubeVirtCrd()
	if err != nil {
		return nil, err
	}
	objects := []runtime.Object{kubevirt}
	for _, crd := range strategy.CRDs() {
		objects = append(objects, crd)
	}
	return objects, nil
}

func accounts(strategy *install.Strategy, namespace string) []runtime.Object {
	objects := []runtime.Object{&corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
	}}
	objects = add(objects, strategy.ServiceAccounts())
	objects = add(objects, strategy.ClusterRoles())
	objects = add(objects, strategy.ClusterRoleBindings())
	objects = add(objects, strategy.Roles())
	return add(objects, strategy.RoleBindings())
}

// Webhooks omits those of virt-operator, which does not run, and the one that the operator adds only with a feature
// gate.
func webhooks(strategy *install.Strategy, base string, ca []byte) ([]runtime.Object, error) {
	if _, err := url.ParseRequestURI(base); err != nil {
		return nil, fmt.Errorf("--url is required: %w", err)
	}
	rewrite := func(client *admissionv1.WebhookClientConfig) {
		address := base + *client.Service.Path
		*client = admissionv1.WebhookClientConfig{URL: &address, CABundle: ca}
	}
	var objects []runtime.Object
	for _, configuration := range strategy.MutatingWebhookConfigurations() {
		if configuration.Name == components.VirtAPIMutatingWebhookName {
			for i := range configuration.Webhooks {
				rewrite(&configuration.Webhooks[i].ClientConfig)
			}
			objects = append(objects, configuration)
		}
	}
	for _, configuration := range strategy.ValidatingWebhookConfigurations() {
		if configuration.Name == components.VirtAPIValidatingWebhookName {
			for i := range configuration.Webhooks {
				rewrite(&configuration.Webhooks[i].ClientConfig)
			}
			objects = append(objects, configuration)
		}
	}
	return objects, nil
}

// ApiServices refer to virt-api by a Service of type ExternalName for the host of --url, the only type that an API server
// without a pod network can reach.
func apiServices(strategy *install.Strategy, namespace, base string, ca []byte) ([]runtime.Object, error) {
	address, err := url.ParseRequestURI(base)
	if err != nil {
		return nil, fmt.Errorf("--url is required: %w", err)
	}
	port, err := strconv.ParseInt(address.Port(), 10, 32)
	if err != nil {
		return nil, fmt.Errorf("--url must have a port: %w", err)
	}
	number := int32(port)
	objects := []runtime.Object{&corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Name: components.VirtApiServiceName, Namespace: namespace},
		Spec: corev1.ServiceSpec{
			Type:         corev1.ServiceTypeExternalName,
			ExternalName: address.Hostname(),
			Ports:        []corev1.ServicePort{{Port: number}},
		},
	}}
	for _, service := range strategy.APIServices() {
		service.Spec.CABundle = ca
		service.Spec.Service.Port = &number
		objects = append(objects, service)
	}
	return objects, nil
}

func add[T runtime.Object](objects []runtime.Object, more []T) []runtime.Object {
	for _, object := range more {
		objects = append(objects, object)
	}
	return objects
}

// Print omits the status that some Go types always marshal.
func print(objects []runtime.Object) error {
	for _, object := range objects {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return err
		}
		delete(fields, "status")
		text, err := yaml.Marshal(fields)
		if err != nil {
			return err
		}
		fmt.Printf("---\n%s", text)
	}
	return nil
}
