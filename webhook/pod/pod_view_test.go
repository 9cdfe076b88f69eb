// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/policies"
	"sluice.dev/policies/engine"
	"sluice.dev/webhook/evaluation"
	"sluice.dev/webhook/pod"
)

// volumeNamePolicy writes the names of all volumes and mounts to its changes, denials and warnings.
const volumeNamePolicy = `package curious

overrides.metadata.annotations["example.org/volumes"] := concat(",", [v.name | some v in input.object.spec.volumes])

overrides.spec.containers := [{"name": c.name, "env": [{"name": "MOUNTS", "value": concat(",", [m.name | some m in c.volumeMounts])}]} |
	some c in input.object.spec.containers
]

deny contains sprintf("no directories: %s", [v.name]) if {
	some v in input.object.spec.volumes
	v.hostPath.path == "/refused"
}

warn contains v.name if some v in input.object.spec.volumes
`

// podNamePolicy reads fields that the API server generates.
const podNamePolicy = `package nosy

warn contains sprintf("pod %s, %s", [object.get(input.object.metadata, "name", ""), object.get(input.object.metadata, "uid", "")])
`

// newCountingBase returns a base, and its number of policy evaluations, cached ones included.
func newCountingBase(t *testing.T, cacheEntries int, more ...engine.Source) (evaluation.Base, *int) {
	t.Helper()
	evaluations := new(int)
	policyEngine, err := engine.New(engine.Options{
		Libraries: policies.Libraries(), Limits: limits, CacheEntries: cacheEntries, Observe: func(engine.Evaluation) { *evaluations++ },
	})
	if err != nil {
		t.Fatal(err)
	}
	policyEngine.Update(append(policies.BuiltIn(), more...))
	base := newBase(t)
	base.Evaluator.Engine = policyEngine
	return base, evaluations
}

func decodeRequest(t *testing.T, raw []byte) admission.Request {
	t.Helper()
	var decoded admissionv1.AdmissionReview
	if err := json.Unmarshal(raw, &decoded); err != nil {
		t.Fatal(err)
	}
	return admission.Request{AdmissionRequest: *decoded.Request}
}

// The pods of one controller differ only in the fields that the API server generates.
func TestPodsOfOneControllerAreEvaluatedOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		rego      string
		validated int
	}{
		"the built-in policies":                       {"package team", 1},
		"a policy that warns of volumes":              {"package team\nwarn contains v.name if some v in input.object.spec.volumes", 1},
		"a policy that writes volume names elsewhere": {volumeNamePolicy, 3},
		"a policy that reads pod names":               {podNamePolicy, 3},
	} {
		t.Run(name, func(t *testing.T) {
			base, evaluations := newCountingBase(t, 0, engine.Source{Name: "team", Rego: tc.rego})
			mutator := &admission.Webhook{Handler: &pod.Mutator{Base: base}}
			validator := &admission.Webhook{Handler: &pod.Validator{Base: base}}
			var mutated, validated int
			for number := range 3 {
				raw := trainingReview(t, 1, number)
				before := *evaluations
				_, response := serveTimed(t, mutator, raw)
				if *evaluations > before {
					mutated++
				}
				before = *evaluations
				serveTimed(t, validator, patchedReview(t, raw, response))
				if *evaluations > before {
					validated++
				}
			}
			// A pod with a generated name has none yet when the Mutator handles it.
			if mutated != 1 || validated != tc.validated {
				t.Errorf("mutated %d and validated %d, want 1 and %d", mutated, validated, tc.validated)
			}
		})
	}
}

// A pod never gets the response of a different pod: the cached response equals the evaluated one.
func TestCachedResponseDependsOnEveryField(t *testing.T) {
	sources := []engine.Source{{Name: "curious", Rego: volumeNamePolicy}}
	caching, _ := newCountingBase(t, 0, sources...)
	mutator := &pod.Mutator{Base: caching}
	uncached, _ := newCountingBase(t, -1, sources...)
	compare := func(t *testing.T, object []byte) {
		t.Helper()
		request := decodeRequest(t, trainingReview(t, 1, 1))
		request.Object.Raw = object
		want := (&pod.Mutator{Base: uncached}).Handle(t.Context(), request)
		got := mutator.Handle(t.Context(), request)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s\n(-evaluated +cached):\n%s", object, diff)
		}
		for _, text := range append(slices.Clone(got.Warnings), string(got.Patch), got.Result.Message) {
			if strings.Contains(text, "kube-api-access-00000") && !strings.Contains(string(object), "kube-api-access-00000") {
				t.Errorf("the response has the canonical volume name: %s", text)
			}
		}
	}
	original := decodeRequest(t, trainingReview(t, 1, 1)).Object.Raw
	compare(t, original)
	var pod any
	if err := json.Unmarshal(original, &pod); err != nil {
		t.Fatal(err)
	}
	replacements := []any{tokenVolumeName(1), tokenVolumeName(7), "kube-api-access-00000", float64(7)}
	forEachLeaf(pod, func(set func(any), old any) {
		for _, value := range replacements {
			if value == old {
				continue
			}
			set(value)
			raw, err := json.Marshal(pod)
			if err != nil {
				t.Fatal(err)
			}
			compare(t, raw)
		}
		set(old)
	})
}

// forEachLeaf visits all scalar values of a document, with a function that replaces the value.
func forEachLeaf(document any, visit func(set func(any), old any)) {
	visitChild := func(value any, set func(any)) {
		switch value.(type) {
		case map[string]any, []any:
			forEachLeaf(value, visit)
		default:
			visit(set, value)
		}
	}
	switch node := document.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(node)) {
			if key != "managedFields" {
				visitChild(node[key], func(v any) { node[key] = v })
			}
		}
	case []any:
		for i := range node {
			visitChild(node[i], func(v any) { node[i] = v })
		}
	}
}

// Responses have the volume names that the author chose, even if they look like generated ones.
func TestResponsesUseOriginalVolumeNames(t *testing.T) {
	mine, other := tokenVolumeName(1), tokenVolumeName(2)
	directory := func(name string) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/refused"}}}
	}
	tests := map[string]struct {
		change func(*corev1.Pod)
		want   []string
	}{
		"the author's own volume": {func(p *corev1.Pod) { p.Spec.Volumes = append(p.Spec.Volumes, directory("mine")) }, []string{mine, "mine"}},
		"two with a token's name": {func(p *corev1.Pod) { p.Spec.Volumes = append(p.Spec.Volumes, directory(other)) }, []string{mine, other}},
		"one, but not a token":    {func(p *corev1.Pod) { p.Spec.Volumes = append(p.Spec.Volumes[:2], directory(mine)) }, []string{mine}},
		"the canonical name": {func(p *corev1.Pod) {
			p.Spec.Volumes = append(p.Spec.Volumes, directory("kube-api-access-00000"))
		}, []string{mine, "kube-api-access-00000"}},
		"in a variable as well": {func(p *corev1.Pod) {
			p.Spec.Volumes = append(p.Spec.Volumes[:2], directory(mine))
			p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, corev1.EnvVar{Name: "V", Value: "my-" + mine})
		}, []string{mine}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			base, _ := newCountingBase(t, 0, engine.Source{Name: "curious", Rego: volumeNamePolicy})
			mutator := &pod.Mutator{Base: base}
			// The second pod differs from the cached one only in the token volume's name.
			for _, first := range []int{3, 1} {
				pod := trainingPod(1, 1)
				tc.change(pod)
				raw := encodeAdmissionReview(t, pod, 1)
				if first != 1 {
					raw = []byte(strings.ReplaceAll(string(raw), mine, tokenVolumeName(first)))
				}
				response := mutator.Handle(t.Context(), decodeRequest(t, raw))
				texts := strings.Join(append(response.Warnings, response.Result.Message, string(response.Patch)), "\n")
				for _, want := range tc.want {
					if want == mine {
						want = tokenVolumeName(first)
					}
					if !strings.Contains(texts, want) {
						t.Errorf("volume %s is missing in:\n%s", want, texts)
					}
				}
			}
		})
	}
}
