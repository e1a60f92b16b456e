// Prints the protobuf layout of the built-in kinds that the embedded API serves, one message per line, for
// crates/apiserver/src/protobuf/messages.txt. Client-go sends these kinds as protobuf.
//
// A line is `MESSAGE FIELD…`, a field is `NUMBER:NAME:TYPE`. TYPE is `string`, `bytes`, `int`, `bool`, `double`, a special
// form (`time`, `microtime`, `quantity`, `intorstring`, `raw`, `json`, `duration`) or `.MESSAGE`; the prefix `[]` means
// repeated, `{}` means the value of a map, `?` means that an unset field is absent instead of zero.
package main

import (
	"fmt"
	"reflect"
	"sort"
	"strings"

	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	events "k8s.io/api/events/v1"
	rbac "k8s.io/api/rbac/v1"
	storage "k8s.io/api/storage/v1"
	extensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

var special = map[reflect.Type]string{
	reflect.TypeFor[meta.Time](): "time", reflect.TypeFor[meta.MicroTime](): "microtime", reflect.TypeFor[meta.Duration](): "duration",
	reflect.TypeFor[resource.Quantity](): "quantity", reflect.TypeFor[intstr.IntOrString](): "intorstring",
	reflect.TypeFor[meta.FieldsV1](): "raw", reflect.TypeFor[runtime.RawExtension](): "raw", reflect.TypeFor[extensions.JSON](): "json",
	reflect.TypeFor[extensions.JSONSchemaPropsOrArray](): "schemaorarray", reflect.TypeFor[extensions.JSONSchemaPropsOrBool](): "schemaorbool",
	reflect.TypeFor[extensions.JSONSchemaPropsOrStringArray](): "schemaorstrings",
}

var lines = map[string]string{}

func name(t reflect.Type) string {
	return strings.ReplaceAll(strings.TrimPrefix(t.PkgPath(), "k8s.io/"), "/", ".") + "." + t.Name()
}

func kind(t reflect.Type) string {
	if form, ok := special[t]; ok {
		if strings.HasPrefix(form, "schemaor") {
			visit(reflect.TypeFor[extensions.JSONSchemaProps]())
		}
		return form
	}
	switch t.Kind() {
	case reflect.Pointer:
		return kind(t.Elem())
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "bool"
	case reflect.Float32, reflect.Float64:
		return "double"
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint32, reflect.Uint64:
		return "int"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		return "[]" + kind(t.Elem())
	case reflect.Map:
		return "{}" + kind(t.Elem())
	case reflect.Struct:
		visit(t)
		return "." + name(t)
	}
	panic(t.String())
}

func visit(t reflect.Type) {
	if _, ok := lines[name(t)]; ok {
		return
	}
	lines[name(t)] = ""
	lines[name(t)] = strings.Join(fields(t), " ")
}

func fields(t reflect.Type) []string {
	var list []string
	for i := range t.NumField() {
		field := t.Field(i)
		tag := strings.Split(field.Tag.Get("protobuf"), ",")
		if len(tag) < 2 {
			continue
		}
		json := strings.Split(field.Tag.Get("json"), ",")[0]
		// An inlined struct is a separate message in protobuf, but its fields are siblings in JSON.
		if json == "" {
			json = "@"
		}
		optional := ""
		if k := field.Type.Kind(); k == reflect.Pointer || k == reflect.Slice || k == reflect.Map || !strings.Contains(field.Tag.Get("json"), "omitempty") && k != reflect.String && k != reflect.Struct {
			optional = "?"
		}
		list = append(list, fmt.Sprintf("%s:%s:%s%s", tag[1], json, optional, kind(field.Type)))
	}
	return list
}

func main() {
	for _, t := range []reflect.Type{
		reflect.TypeFor[core.Namespace](), reflect.TypeFor[core.Secret](), reflect.TypeFor[core.ConfigMap](), reflect.TypeFor[core.Event](),
		reflect.TypeFor[core.ServiceAccount](), reflect.TypeFor[core.PersistentVolumeClaim](), reflect.TypeFor[core.PersistentVolume](),
		reflect.TypeFor[core.Node](), reflect.TypeFor[storage.StorageClass](), reflect.TypeFor[coordination.Lease](), reflect.TypeFor[events.Event](),
		reflect.TypeFor[authentication.TokenReview](), reflect.TypeFor[authentication.SelfSubjectReview](),
		reflect.TypeFor[authorization.SubjectAccessReview](), reflect.TypeFor[authorization.LocalSubjectAccessReview](),
		reflect.TypeFor[authorization.SelfSubjectAccessReview](), reflect.TypeFor[authorization.SelfSubjectRulesReview](),
		reflect.TypeFor[rbac.Role](), reflect.TypeFor[rbac.RoleBinding](), reflect.TypeFor[rbac.ClusterRole](), reflect.TypeFor[rbac.ClusterRoleBinding](),
		reflect.TypeFor[extensions.CustomResourceDefinition](), reflect.TypeFor[meta.DeleteOptions](),
	} {
		visit(t)
	}
	names := make([]string, 0, len(lines))
	for name := range lines {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Println(strings.TrimSpace(name + " " + lines[name]))
	}
}
