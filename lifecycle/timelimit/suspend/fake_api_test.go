// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package suspend_test

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

	"sluice.dev/api/workloadkind"
	"sluice.dev/lifecycle/timelimit/suspend"
)

const (
	namespace = "thesis-mueller"
	version   = "v1"
)

// crdGVK is the kind of CustomResourceDefinitions.
var crdGVK = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// unknownKind is a kind that Sluice does not know.
var unknownKind = schema.GroupKind{Group: "example.org", Kind: "Farm"}

func groupKind(group, name string) schema.GroupKind {
	return schema.GroupKind{Group: group, Kind: name}
}

// newObject returns an object with the name x and the rest from YAML.
func newObject(t *testing.T, kind schema.GroupKind, rest string) *unstructured.Unstructured {
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

// targetOf returns the target of an object.
func targetOf(object *unstructured.Unstructured) suspend.Target {
	return suspend.Target{GroupVersionKind: object.GroupVersionKind(), Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID()}
}

// fakeAPI is an in-memory cluster that counts writes and can fail calls.
type fakeAPI struct {
	client client.Client
	writes int
	// callError returns the error of a call: get, list, patch, apply or delete.
	callError func(verb string, object client.Object) error
}

func (w *fakeAPI) stopper() *suspend.Stopper { return &suspend.Stopper{Client: w.client} }

func newFakeAPI(t *testing.T, objects ...*unstructured.Unstructured) *fakeAPI {
	t.Helper()
	w := &fakeAPI{}
	var served []schema.GroupVersion
	for _, kind := range workloadkind.All() {
		served = append(served, kind.WithVersion(version).GroupVersion())
	}
	mapper := meta.NewDefaultRESTMapper(served)
	for _, kind := range workloadkind.All() {
		mapper.AddSpecific(kind.WithVersion(version), kind.WithVersion(version).GroupVersion().WithResource(kind.Resource), schema.GroupVersionResource{}, meta.RESTScopeNamespace)
	}
	mapper.AddSpecific(unknownKind.WithVersion(version), schema.GroupVersionResource{Group: unknownKind.Group, Version: version, Resource: "farms"}, schema.GroupVersionResource{}, meta.RESTScopeNamespace)
	mapper.Add(schema.GroupVersionKind{Group: unknownKind.Group, Version: version, Kind: "Estate"}, meta.RESTScopeRoot)
	mapper.Add(crdGVK, meta.RESTScopeRoot)
	scheme := clientscheme.Scheme
	builder := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper)
	for _, object := range objects {
		builder.WithObjects(object)
	}
	check := func(verb string, object client.Object) error {
		if verb != "get" && verb != "list" {
			w.writes++
		}
		if w.callError == nil {
			return nil
		}
		return w.callError(verb, object)
	}
	w.client = builder.WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
			if err := check("get", object); err != nil {
				return err
			}
			return c.Get(ctx, key, object, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := check("list", nil); err != nil {
				return err
			}
			return c.List(ctx, list, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := check("patch", object); err != nil {
				return err
			}
			return c.Patch(ctx, object, patch, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.DeleteOption) error {
			if err := check("delete", object); err != nil {
				return err
			}
			return c.Delete(ctx, object, opts...)
		},
	}).Build()
	return w
}

// get returns the current object.
func (w *fakeAPI) get(t *testing.T, of client.Object) *unstructured.Unstructured {
	t.Helper()
	before := w.callError
	w.callError = nil
	defer func() { w.callError = before }()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(of.GetObjectKind().GroupVersionKind())
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(of), u); err != nil {
		t.Fatal(err)
	}
	return u
}

// patchObject patches an object like its owner. It is not counted.
func (w *fakeAPI) patchObject(t *testing.T, of client.Object, patch string) {
	t.Helper()
	object := w.get(t, of)
	raw, err := yaml.YAMLToJSON([]byte(patch))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.client.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, raw)); err != nil {
		t.Fatal(err)
	}
	w.writes = 0
}
