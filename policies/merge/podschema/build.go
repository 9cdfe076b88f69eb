// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package podschema

import (
	"reflect"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// pod and job are without status: that is the kubelet's or the controller's, and
// nobody merges it. What both consist of is one and the same.
var pod, job = func() (*Type, *Type) {
	b := builder{}
	return b.root(reflect.TypeFor[corev1.Pod]()), b.root(reflect.TypeFor[batchv1.Job]())
}()

// special are the types whose JSON form is not that of their Go type.
var special = map[reflect.Type]*Type{
	reflect.TypeFor[resource.Quantity]():  {Name: "Quantity", Kind: Quantity},
	reflect.TypeFor[intstr.IntOrString](): {Name: "IntOrString", Kind: IntOrText},
	reflect.TypeFor[metav1.Time]():        {Name: "Time", Kind: Text},
	reflect.TypeFor[metav1.FieldsV1]():    {Name: "FieldsV1", Kind: Free, Atomic: true},
}

// builder remembers the structs that it has seen.
type builder map[reflect.Type]*Type

func (b builder) root(t reflect.Type) *Type {
	made := b.of(t)
	delete(made.fields, "status")
	return made
}

func (b builder) of(t reflect.Type) *Type {
	if known, ok := special[t]; ok {
		return known
	}
	switch t.Kind() {
	case reflect.Pointer:
		return b.of(t.Elem())
	case reflect.String:
		return &Type{Name: t.Name(), Kind: Text}
	case reflect.Bool:
		return &Type{Name: t.Name(), Kind: Bool}
	case reflect.Int, reflect.Int32, reflect.Int64:
		return &Type{Name: t.Name(), Kind: Number}
	case reflect.Map:
		return &Type{Kind: Dict, Elem: b.of(t.Elem())}
	case reflect.Slice:
		return &Type{Kind: List, Atomic: true, Elem: b.of(t.Elem())}
	case reflect.Struct:
		if known, ok := b[t]; ok {
			return known
		}
		made := &Type{Name: t.Name(), Kind: Struct, Atomic: replacedWhole[t.Name()], fields: map[string]*Field{}}
		b[t] = made
		b.fields(made, t)
		return made
	}
	return &Type{Name: t.Name(), Kind: Free, Atomic: true}
}

func (b builder) fields(into *Type, t reflect.Type) {
	for i := range t.NumField() {
		declared := t.Field(i)
		name, _, _ := strings.Cut(declared.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case name == "" && declared.Anonymous:
			b.fields(into, declared.Type)
		default:
			field := &Field{
				Name: name, Owner: t.Name(), Type: b.of(declared.Type),
				Pointer: declared.Type.Kind() == reflect.Pointer,
			}
			field.Union = unionTypes[t.Name()] || unions[field.ID()]
			if keys, ok := listKeys[field.ID()]; ok {
				field.Type = &Type{Kind: List, Keys: keys, Elem: field.Type.Elem}
			} else if sets[field.ID()] {
				field.Type = &Type{Kind: List, Elem: field.Type.Elem}
			}
			into.fields[name] = field
		}
	}
}
