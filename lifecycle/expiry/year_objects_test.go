// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sluice.dev/api"
	"sluice.dev/api/v1alpha1"
)

// client reads and writes the objects in memory.
func (y *year) client() client.Client {
	scheme, err := api.NewScheme()
	if err != nil {
		y.b.Fatal(err)
	}
	return interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).Build(), interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
			return y.get(key, into)
		},
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			return y.list(list, opts...)
		},
		Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			if err := y.get(client.ObjectKeyFromObject(o), &v1alpha1.Notice{}); err == nil {
				return apierrors.NewAlreadyExists(schema.GroupResource{}, o.GetName())
			}
			y.writes++
			y.store(o)
			return nil
		},
		SubResourceUpdate: func(_ context.Context, _ client.Client, _ string, o client.Object, _ ...client.SubResourceUpdateOption) error {
			y.writes++
			y.store(o)
			return nil
		},
		SubResourceApply: func(
			_ context.Context, _ client.Client, _ string, o k8sruntime.ApplyConfiguration, _ ...client.SubResourceApplyOption,
		) error {
			y.writes++
			return y.applyStatus(o)
		},
	})
}

// store adds an object to the cache, or replaces it.
func (y *year) store(o client.Object) {
	kind := ""
	switch o.(type) {
	case *v1alpha1.Project:
		kind = "Project"
	case *v1alpha1.Department:
		kind = "Department"
	case *v1alpha1.Notice:
		kind = "Notice"
	case *v1alpha1.Extension:
		kind = "Extension"
	}
	if err := y.objects[kind].Update(o.DeepCopyObject()); err != nil {
		y.b.Fatal(err)
	}
}

func (y *year) get(key client.ObjectKey, into client.Object) error {
	find := func(kind string) (any, error) {
		o, found, err := y.objects[kind].GetByKey(key.String())
		if key.Namespace == "" {
			o, found, err = y.objects[kind].GetByKey(key.Name)
		}
		if err == nil && !found {
			err = apierrors.NewNotFound(schema.GroupResource{Resource: kind}, key.Name)
		}
		return o, err
	}
	switch into := into.(type) {
	case *v1alpha1.Project:
		o, err := find("Project")
		if err == nil {
			o.(*v1alpha1.Project).DeepCopyInto(into)
		}
		return err
	case *v1alpha1.Department:
		o, err := find("Department")
		if err == nil {
			o.(*v1alpha1.Department).DeepCopyInto(into)
		}
		return err
	case *v1alpha1.Notice:
		o, err := find("Notice")
		if err == nil {
			o.(*v1alpha1.Notice).DeepCopyInto(into)
		}
		return err
	}
	return fmt.Errorf("get %T %s: no such objects", into, key)
}

// list returns the Notices of a project, or the Extensions of a namespace.
func (y *year) list(list client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	switch list := list.(type) {
	case *v1alpha1.NoticeList:
		requirement := o.FieldSelector.Requirements()[0]
		found, err := y.objects["Notice"].ByIndex(requirement.Field, requirement.Value)
		for _, n := range found {
			list.Items = append(list.Items, *n.(*v1alpha1.Notice))
		}
		return err
	case *v1alpha1.ExtensionList:
		found, err := y.objects["Extension"].ByIndex(cache.NamespaceIndex, o.Namespace)
		for _, e := range found {
			list.Items = append(list.Items, *e.(*v1alpha1.Extension).DeepCopy())
		}
		return err
	}
	return fmt.Errorf("list %T: no such objects", list)
}

// applyStatus replaces the status of a project, of which lifecycle/expiry writes all fields here but the namespace.
func (y *year) applyStatus(desired k8sruntime.ApplyConfiguration) error {
	raw, err := json.Marshal(desired)
	if err != nil {
		return err
	}
	var applied, current v1alpha1.Project
	if err := json.Unmarshal(raw, &applied); err != nil {
		return err
	}
	if err := y.get(client.ObjectKey{Name: applied.Name}, &current); err != nil {
		return err
	}
	applied.Status.Namespace = current.Status.Namespace
	current.Status = applied.Status
	y.store(&current)
	return nil
}
