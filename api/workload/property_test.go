// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
)

// validAnnotations are texts of which each is right for its key, beside some that are not.
var validAnnotations = map[string][]string{
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

// randomPod requests GPUs in a random combination of notations.
func randomPod(t *rapid.T) podTemplateBuilder {
	p := newPod()
	for _, key := range rapid.SliceOfNDistinct(rapid.SampledFrom(annotationKeys()), 0, 3, rapid.ID[string]).Draw(t, "keys") {
		p = p.withAnnotation(key, rapid.SampledFrom(validAnnotations[key]).Draw(t, key))
	}
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]corev1.ResourceName{
		"nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/gpumem-percentage", "nvidia.com/mig-1g.5gb", "koordinator.sh/gpu",
	}), 0, 2, rapid.ID[corev1.ResourceName]).Draw(t, "resources") {
		p = p.withLimit(name, rapid.SampledFrom([]string{"0", "1", "2", "50"}).Draw(t, string(name)))
	}
	return p.withContainer("second").withEnv(v1alpha1.EnvRunAIGPUMemoryLimit, rapid.SampledFrom([]string{"0.9", "20Gi"}).Draw(t, "limit"))
}

func annotationKeys() []string {
	return append([]string{v1alpha1.AnnotationGPUFractionContainer, v1alpha1.AnnotationNodePools, v1alpha1.AnnotationMaxRuntime}, amountKeys...)
}

func TestParsePodEqualsParse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := randomPod(t)
		ofTemplate, err := workload.Parse(p.PodTemplateSpec)
		ofPod, errOfPod := workload.ParsePod(&corev1.Pod{ObjectMeta: p.ObjectMeta, Spec: p.Spec})
		if diff := cmp.Diff(ofTemplate, ofPod); diff != "" {
			t.Fatalf("-template +pod\n%s", diff)
		}
		if diff := cmp.Diff(errorText(err), errorText(errOfPod)); diff != "" {
			t.Fatalf("-template +pod\n%s", diff)
		}
		if err == nil {
			checkRequestIsConsistent(t, &ofPod)
		}
	})
}

// The label of an admitted pod does not change its request, and annotations beside a granted
// resource have no effect.
func TestAdmittedLabelGainsNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := randomPod(t)
		before, err := workload.Parse(p.PodTemplateSpec)
		after, errAfter := workload.Parse(p.withLabel(v1alpha1.LabelProject, "thesis").PodTemplateSpec)
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

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// FuzzParse parses pods with arbitrary keys and values. The result is always the same: a consistent
// Request, or an error that names fields.
func FuzzParse(f *testing.F) {
	f.Add("gpu-fraction", "0.5", "gpu-fraction-num-devices", "2", "nvidia.com/gpu", "0", "0", "train", "0.95", byte(0))
	f.Add("sluice.dev/gpu", "1500m", "gpu-memory.limit", "16Gi", "nvidia.com/mig-1c.3g.20gb", "1", "1", "", "", byte(1))
	f.Add("gpu-memory", "8192", "sluice.dev/gpu-memory-limit", "16384", "nvidia.com/mig-1g.10gb.me", "2", "", "inference", "1e40", byte(2))
	f.Add("sluice.dev/node-pools", "a,,b", "sluice.dev/max-runtime", "6h", "nvidia.com/gpumem", "-1", "9e30", "*", "-1", byte(3))
	f.Add("nvidia.com/container.main.gpu-memory.request", "8Gi", "gpu-memory", "8192", "koordinator.sh/gpu", "150", "150", "", "NaN", byte(7))
	f.Add("gpu-fraction-container-name", "init", "gpu-fraction", ".1", "deviceclass.resource.kubernetes.io/x", "1", "2", "", "0.1", byte(12))
	f.Fuzz(func(t *testing.T, key, value, key2, value2, name, limit, request, kind, env string, shape byte) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Annotations: map[string]string{key: value, key2: value2},
			Labels:      map[string]string{"sluice.dev/workload-type": kind},
		}}
		if kind == "" {
			pod.Labels = nil
		}
		if shape&1 != 0 {
			metav1.SetMetaDataLabel(&pod.ObjectMeta, "sluice.dev/project", "thesis")
		}
		c := corev1.Container{Name: "main", Env: []corev1.EnvVar{{Name: "RUNAI_GPU_MEMORY_LIMIT", Value: env}}}
		if quantity, err := resource.ParseQuantity(limit); err == nil {
			c.Resources.Limits = corev1.ResourceList{corev1.ResourceName(name): quantity, "nvidia.com/gpu": resource.MustParse("1")}
			if shape&2 != 0 {
				delete(c.Resources.Limits, "nvidia.com/gpu")
			}
		}
		if quantity, err := resource.ParseQuantity(request); err == nil {
			c.Resources.Requests = corev1.ResourceList{corev1.ResourceName(name): quantity}
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c, corev1.Container{Name: "plain"})
		c.Name = "init"
		if shape&4 != 0 {
			c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		}
		if shape&8 != 0 {
			second := c
			second.Name = "second"
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c, second)
		}
		if shape&16 != 0 {
			pod.Spec.Containers[1].Name = env
		}

		got, err := workload.ParsePod(pod)
		again, errAgain := workload.Parse(&corev1.PodTemplateSpec{ObjectMeta: *pod.ObjectMeta.DeepCopy(), Spec: *pod.Spec.DeepCopy()})
		if diff := cmp.Diff(got, again); diff != "" {
			t.Fatalf("the pod and its template differ: %s", diff)
		}
		if (err == nil) != (errAgain == nil) || (err != nil && err.Error() != errAgain.Error()) {
			t.Fatalf("two errors for one pod:\n%v\n%v", err, errAgain)
		}
		if err != nil {
			checkErrorsNameFields(t, err)
			return
		}
		checkRequestIsConsistent(t, &got)
	})
}

// checkErrorsNameFields checks that each error has a field and a value.
func checkErrorsNameFields(t *testing.T, err error) {
	t.Helper()
	var malformed workload.InvalidRequest
	if !errors.As(err, &malformed) || len(malformed) == 0 {
		t.Fatalf("no Malformed: %v", err)
	}
	for _, problem := range malformed {
		if problem.Field == "" || problem.Detail == "" {
			t.Fatalf("an entry without a field or a reason: %#v", problem)
		}
	}
}

// checkRequestIsConsistent checks what holds for every Request.
func checkRequestIsConsistent(t rapid.TB, r *workload.Request) {
	t.Helper()
	for what, amount := range map[string]int64{
		"devices": r.Devices, "share": int64(r.Share), "shareLimit": int64(r.ShareLimit), "memoryMiB": r.MemoryMiB, "memoryLimitMiB": r.MemoryLimitMiB,
		"computeShare": int64(r.ComputeShare), "gpus": int64(r.GPUs), "maxRuntimeSeconds": r.MaxRuntimeSeconds,
	} {
		if amount < 0 {
			t.Fatalf("%s is %d: %+v", what, amount, r)
		}
	}
	for _, list := range []workload.Amounts{r.Resources, r.DeviceClasses} {
		for _, amount := range list {
			if amount.Count <= 0 {
				t.Fatalf("%+v in %+v", amount, r)
			}
		}
	}
	asks := r.Devices > 0 && r.GPUs > 0
	switch r.Form {
	case workload.FormNone:
		asks = r.Devices == 0 && r.GPUs == 0 && len(r.Resources) == 0
	case workload.FormWhole:
		asks = asks && r.Share == 1000
	case workload.FormShare:
		asks = asks && r.Share > 0 && r.Share < 1000
	case workload.FormMemory:
		asks = asks && r.MemoryMiB > 0
	case workload.FormMIG:
		asks = asks && r.MIGProfile != ""
	case workload.FormReplica:
	default:
		asks = false
	}
	if !asks || (r.Form == workload.FormShare && r.ShareLimit > 0 && r.ShareLimit < r.Share) || (r.MemoryLimitMiB > 0 && r.MemoryLimitMiB < r.MemoryMiB) {
		t.Fatalf("a Request that makes no sense: %+v", r)
	}
	if (r.MaxRuntime == period.Duration{}) != (r.MaxRuntimeSeconds == 0) {
		t.Fatalf("two times: %+v", r)
	}
}
