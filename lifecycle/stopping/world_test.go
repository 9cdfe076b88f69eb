// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package stopping_test

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/workload/kinds"
	"sluice.dev/lifecycle/stopping"
)

const (
	namespace = "thesis-mueller"
	version   = "v1"
)

// definitions is the kind of the kinds.
var definitions = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// farm is a kind that Sluice does not know.
var farm = schema.GroupKind{Group: "example.org", Kind: "Farm"}

func kindOf(group, name string) schema.GroupKind { return schema.GroupKind{Group: group, Kind: name} }

// made is an object called x, with the rest in YAML.
func made(t *testing.T, kind schema.GroupKind, rest string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{}}
	raw, err := yaml.YAMLToJSON([]byte(rest))
	if err != nil {
		t.Fatal(err)
	}
	if err := utilyaml.Unmarshal(raw, &u.Object); err != nil {
		t.Fatal(err)
	}
	u.SetGroupVersionKind(kind.WithVersion(version))
	u.SetNamespace(namespace)
	u.SetName("x")
	u.SetUID("uid-of-x")
	return u
}

// target means an object as it was seen.
func target(object *unstructured.Unstructured) stopping.Target {
	return stopping.Target{GroupVersionKind: object.GroupVersionKind(), Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID()}
}

// world is a cluster in memory that counts what is written, and fails as told.
type world struct {
	client client.Client
	writes int
	// fail is asked before each call: get, list, patch, apply or delete.
	fail func(verb string, object client.Object) error
}

func (w *world) stopper() *stopping.Stopper { return &stopping.Stopper{Client: w.client} }

func newWorld(t *testing.T, objects ...*unstructured.Unstructured) *world {
	t.Helper()
	w := &world{}
	var served []schema.GroupVersion
	for _, kind := range kinds.All() {
		served = append(served, kind.WithVersion(version).GroupVersion())
	}
	mapper := meta.NewDefaultRESTMapper(served)
	for _, kind := range kinds.All() {
		mapper.AddSpecific(kind.WithVersion(version), kind.WithVersion(version).GroupVersion().WithResource(kind.Resource), schema.GroupVersionResource{}, meta.RESTScopeNamespace)
	}
	mapper.AddSpecific(farm.WithVersion(version), schema.GroupVersionResource{Group: farm.Group, Version: version, Resource: "farms"}, schema.GroupVersionResource{}, meta.RESTScopeNamespace)
	mapper.Add(schema.GroupVersionKind{Group: farm.Group, Version: version, Kind: "Estate"}, meta.RESTScopeRoot)
	mapper.Add(definitions, meta.RESTScopeRoot)
	scheme := clientscheme.Scheme
	builder := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper)
	for _, object := range objects {
		builder.WithObjects(object)
	}
	ask := func(verb string, object client.Object) error {
		if verb != "get" && verb != "list" {
			w.writes++
		}
		if w.fail == nil {
			return nil
		}
		return w.fail(verb, object)
	}
	w.client = builder.WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
			if err := ask("get", object); err != nil {
				return err
			}
			return c.Get(ctx, key, object, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := ask("list", nil); err != nil {
				return err
			}
			return c.List(ctx, list, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := ask("patch", object); err != nil {
				return err
			}
			return c.Patch(ctx, object, patch, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.DeleteOption) error {
			if err := ask("delete", object); err != nil {
				return err
			}
			return c.Delete(ctx, object, opts...)
		},
	}).Build()
	return w
}

// now reads an object as it is.
func (w *world) now(t *testing.T, of client.Object) *unstructured.Unstructured {
	t.Helper()
	before := w.fail
	w.fail = nil
	defer func() { w.fail = before }()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(of.GetObjectKind().GroupVersionKind())
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(of), u); err != nil {
		t.Fatal(err)
	}
	return u
}

// change patches an object as its owner would, and counts as no write of ours.
func (w *world) change(t *testing.T, of client.Object, patch string) {
	t.Helper()
	object := w.now(t, of)
	raw, err := yaml.YAMLToJSON([]byte(patch))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.client.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, raw)); err != nil {
		t.Fatal(err)
	}
	w.writes = 0
}
