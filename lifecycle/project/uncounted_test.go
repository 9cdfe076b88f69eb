// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

func TestUncounted(t *testing.T) {
	pod := func(name, gpus string, change ...func(*corev1.Pod)) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}}
		if gpus != "" {
			p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{v1alpha1.ResourceNVIDIAGPU: resource.MustParse(gpus)}
		}
		for _, c := range change {
			c(&p)
		}
		return p
	}
	over := func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }
	counted := func(p *corev1.Pod) { p.Labels = map[string]string{v1alpha1.LabelProject: "thesis"} }
	unreadable := func(p *corev1.Pod) {
		p.Annotations = map[string]string{v1alpha1.AnnotationGPU: "half"}
	}
	got := Uncounted([]corev1.Pod{
		pod("old", "2"), pod("web", ""), pod("done", "1", over), pod("new", "1", counted), pod("broken", "", unreadable), pod("another", "1"),
	})
	if diff := cmp.Diff([]string{"another", "broken", "old"}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestUncountedCondition(t *testing.T) {
	if c := uncountedCondition(nil); c.Status != metav1.ConditionFalse || c.Reason != ReasonAllCounted {
		t.Errorf("of none: %+v", c)
	}
	var names []string
	for i := range 12 {
		names = append(names, strconv.Itoa(i))
	}
	c := uncountedCondition(names)
	if c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonPodsUncounted || !strings.Contains(c.Message, "8, 9 and 2 more;") {
		t.Errorf("of twelve: %+v", c)
	}
}
