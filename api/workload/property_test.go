// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
)

// wellFormed are texts of which each is right for its key, beside some that are not.
var wellFormed = map[string][]string{
	v1alpha1.AnnotationGPU:                  {"500m", "0.25", "2", "1.5"},
	v1alpha1.AnnotationGPUFraction:          {"0.5", "0.25", ".1", "1"},
	v1alpha1.AnnotationGPUMemory:            {"8192", "1", "0"},
	v1alpha1.AnnotationGPUFractionDevices:   {"1", "2", "8", "-1"},
	v1alpha1.AnnotationGPUFractionContainer: {"main", "second", "nobody"},
	v1alpha1.AnnotationGPUMemoryLimit:       {"16384", "2"},
	v1alpha1.AnnotationGPUMemoryLimitKAI:    {"16Gi", "16384"},
	v1alpha1.AnnotationGPUFractionLimitKAI:  {"0.8", "0.2"},
	v1alpha1.AnnotationNodePools:            {"a,b", "a"},
	v1alpha1.AnnotationMaxRuntime:           {"6h"},
}

// amountKeys are those of them that say how much, of how many, up to what.
var amountKeys = []string{
	v1alpha1.AnnotationGPU, v1alpha1.AnnotationGPUFraction, v1alpha1.AnnotationGPUMemory, v1alpha1.AnnotationGPUFractionDevices,
	v1alpha1.AnnotationGPUMemoryLimit, v1alpha1.AnnotationGPUMemoryLimitKAI, v1alpha1.AnnotationGPUFractionLimitKAI,
}

// randomPod asks for GPUs in a few of the ways, seldom in all of them.
func randomPod(t *rapid.T) template {
	p := pod()
	for _, key := range rapid.SliceOfNDistinct(rapid.SampledFrom(keys()), 0, 3, rapid.ID[string]).Draw(t, "keys") {
		p = p.annotated(key, rapid.SampledFrom(wellFormed[key]).Draw(t, key))
	}
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]corev1.ResourceName{
		"nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/gpumem-percentage", "nvidia.com/mig-1g.5gb", "koordinator.sh/gpu",
	}), 0, 2, rapid.ID[corev1.ResourceName]).Draw(t, "resources") {
		p = p.asking(name, rapid.SampledFrom([]string{"0", "1", "2", "50"}).Draw(t, string(name)))
	}
	return p.container("second").env(v1alpha1.EnvRunAIGPUMemoryLimit, rapid.SampledFrom([]string{"0.9", "20Gi"}).Draw(t, "limit"))
}

func keys() []string {
	return append([]string{v1alpha1.AnnotationGPUFractionContainer, v1alpha1.AnnotationNodePools, v1alpha1.AnnotationMaxRuntime}, amountKeys...)
}

func TestAPodIsReadLikeItsTemplate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := randomPod(t)
		ofTemplate, err := workload.Parse(p.PodTemplateSpec)
		ofPod, errOfPod := workload.ParsePod(&corev1.Pod{ObjectMeta: p.ObjectMeta, Spec: p.Spec})
		if diff := cmp.Diff(ofTemplate, ofPod); diff != "" {
			t.Fatalf("-template +pod\n%s", diff)
		}
		if diff := cmp.Diff(text(err), text(errOfPod)); diff != "" {
			t.Fatalf("-template +pod\n%s", diff)
		}
		if err == nil {
			sensible(t, &ofPod)
		}
	})
}

// That a pod was admitted changes nothing of what it asks for, and where a
// resource was granted the annotations beside it neither add nor take away.
func TestToBeAdmittedGainsNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := randomPod(t)
		before, err := workload.Parse(p.PodTemplateSpec)
		after, errAfter := workload.Parse(p.labelled(v1alpha1.LabelProject, "thesis").PodTemplateSpec)
		if err == nil {
			if diff := cmp.Diff(before, after); diff != "" || errAfter != nil {
				t.Fatalf("%v\n-before +after\n%s", errAfter, diff)
			}
		}
		if errAfter != nil || len(after.Resources) == 0 {
			return
		}
		for _, key := range amountKeys {
			delete(p.Annotations, key)
		}
		granted, err := workload.Parse(p.PodTemplateSpec)
		if err != nil {
			t.Fatal(err)
		}
		if granted.Form != after.Form || granted.Devices != after.Devices || granted.GPUs != after.GPUs || granted.Share != after.Share {
			t.Fatalf("its resources alone are %+v, with annotations %+v", granted, after)
		}
	})
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
