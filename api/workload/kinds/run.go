// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"encoding/json"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sluice.dev/api/v1alpha1"
)

// AsksToRun tells whether an object wants pods: it is neither suspended nor
// scaled to nothing. A kind that the table does not have is read as most kinds
// write it: spec.suspend, else spec.replicas. A Scale, which is what is asked for
// at the scale subresource of any kind, is known.
func AsksToRun(object *unstructured.Unstructured) bool {
	kind, known := Of(object.GroupVersionKind().GroupKind())
	if known {
		return kind.AsksToRun(object)
	}
	if object.GroupVersionKind().GroupKind() == scaleKind {
		// The one kind that leaves a 0 out.
		value, _ := at(object.Object, scale.Path)
		n, _ := whole(value)
		return n > 0
	}
	if _, is := at(object.Object, suspend.Path); is {
		return Kind{Verb: suspend}.AsksToRun(object)
	}
	return Kind{Verb: scale}.AsksToRun(object)
}

var scaleKind = schema.GroupKind{Group: "autoscaling", Kind: "Scale"}

// AsksToRun is the function of that name for an object whose row is known.
func (k Kind) AsksToRun(object *unstructured.Unstructured) bool {
	if k.Verb.Form == FormDelete {
		return object.GetDeletionTimestamp() == nil && !k.HasEnded(object)
	}
	value, is := at(object.Object, k.Verb.Path)
	switch k.Verb.Form {
	case FormField:
		return !is || value != k.Verb.Stop
	case FormMark:
		return !is
	case FormReplicas:
		return Replicas(object, k.Verb.Path) > 0
	}
	return true
}

// Starts tells whether a change makes an object that did not ask to run ask for
// it. Whether it may is another question.
func Starts(before, after *unstructured.Unstructured) bool {
	return !AsksToRun(before) && AsksToRun(after)
}

// Replicas is the number at a path, and 1 where there is none: so it is
// defaulted everywhere.
func Replicas(object *unstructured.Unstructured, path []string) int64 {
	value, _ := at(object.Object, path)
	if n, ok := whole(value); ok {
		return max(n, 0)
	}
	return 1
}

// HasEnded tells whether an object came to its end by itself.
func (k Kind) HasEnded(object *unstructured.Unstructured) bool {
	if phase, _ := at(object.Object, k.Ended.Phase); len(k.Ended.Phase) > 0 {
		word, _ := phase.(string)
		if slices.Contains(k.Ended.Phases, word) {
			return true
		}
	}
	conditions, _ := at(object.Object, []string{"status", "conditions"})
	for _, element := range elements(conditions) {
		condition := entries(element)
		name, _ := condition["type"].(string)
		switch condition["status"] {
		case "True":
			if slices.Contains(k.Ended.Conditions, name) || (name != "" && name == k.Ended.Verdict) {
				return true
			}
		case "False":
			if name != "" && name == k.Ended.Verdict {
				return true
			}
		}
	}
	return false
}

// IsBusy tells whether an object says that it still has pods. What does not
// count them is never busy.
func (k Kind) IsBusy(object *unstructured.Unstructured) bool {
	if len(k.Busy) == 0 {
		return false
	}
	value, _ := at(object.Object, k.Busy)
	n, _ := whole(value)
	return n > 0
}

// whole reads a number as the decoders of Kubernetes and of Go leave it.
func whole(v any) (int64, bool) {
	switch n := v.(type) {
	case int64:
		return n, true
	case int:
		return int64(n), true
	case float64:
		if n != math.Trunc(n) || math.Abs(n) > math.MaxInt32 {
			return 0, false
		}
		return int64(n), true
	case json.Number:
		i, err := n.Int64()
		return i, err == nil
	}
	return 0, false
}

// CanBeStopped tells whether there may be a way to stop objects of a kind. It is
// false for what is never touched: the built-in kinds that make no pods, Node
// and Namespace among them, DaemonSets, and Sluice's own kinds.
func CanBeStopped(kind schema.GroupKind) bool {
	if k, known := Of(kind); known {
		return k.Verb.Form != FormNever
	}
	return kind.Group != "" && kind.Group != apps && kind.Group != batch && kind.Group != v1alpha1.GroupVersion.Group
}
