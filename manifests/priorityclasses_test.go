// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/manifests"
)

// What is installed is what the code says of the classes.
func TestPriorityClassesAreThoseOfTheAPI(t *testing.T) {
	objects, err := manifests.Build(manifests.Base)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int32{}
	for _, object := range objects {
		if object.GetKind() != "PriorityClass" {
			continue
		}
		var class schedulingv1.PriorityClass
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &class, true); err != nil {
			t.Fatal(err)
		}
		got[class.Name] = class.Value
		if class.GlobalDefault {
			t.Errorf("%s is the default of all pods", class.Name)
		}
		const autoscalerCutOff = -10
		if class.Value > 0 || class.Value <= autoscalerCutOff {
			t.Errorf("%s has the value %d; want more than %d, and nothing above other people's pods", class.Name, class.Value, autoscalerCutOff)
		}
	}
	want := map[string]int32{
		v1alpha1.PriorityClassTrain:                  v1alpha1.PriorityTrain,
		v1alpha1.PriorityClassInteractivePreemptible: v1alpha1.PriorityInteractivePreemptible,
		v1alpha1.PriorityClassInteractive:            v1alpha1.PriorityInteractive,
		v1alpha1.PriorityClassInference:              v1alpha1.PriorityInference,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-api +manifests)\n%s", diff)
	}
}
