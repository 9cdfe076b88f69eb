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
	"sluice.dev/webhook/pod"
)

// volumeNamePolicy says of all volumes and mounts how they are called, in what it changes,
// refuses and warns of.
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

// podNamePolicy reads what the API server makes up.
const podNamePolicy = `package nosy

warn contains sprintf("pod %s, %s", [object.get(input.object.metadata, "name", ""), object.get(input.object.metadata, "uid", "")])
`

// newCountingBase is a desk, and how many policies it asked, those that remembered among
// them.
func newCountingBase(t *testing.T, remember int, more ...engine.Source) (pod.Base, *int) {
	t.Helper()
	asked := new(int)
	rules, err := engine.New(engine.Options{
		Libraries: policies.Libraries(), CacheEntries: remember, Observe: func(engine.Evaluation) { *asked++ },
	})
	if err != nil {
		t.Fatal(err)
	}
	rules.Update(append(policies.BuiltIn(), more...))
	desk := newBase(t)
	desk.Evaluator.Engine = rules
	return desk, asked
}

func decodeRequest(t *testing.T, raw []byte) admission.Request {
	t.Helper()
	var decoded admissionv1.AdmissionReview
	if err := json.Unmarshal(raw, &decoded); err != nil {
		t.Fatal(err)
	}
	return admission.Request{AdmissionRequest: *decoded.Request}
}

// The pods of one controller differ in what the API server makes up for each.
func TestPodsOfOneControllerAreEvaluatedOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		rego   string
		judged int
	}{
		"by the built-in policies":                         {"package team", 1},
		"and by one that warns of volumes":                 {"package team\nwarn contains v.name if some v in input.object.spec.volumes", 1},
		"each where their names are written elsewhere too": {volumeNamePolicy, 3},
		"each where a policy reads their names":            {podNamePolicy, 3},
	} {
		t.Run(name, func(t *testing.T) {
			desk, asked := newCountingBase(t, 0, engine.Source{Name: "team", Rego: tc.rego})
			mutator, validator := &admission.Webhook{Handler: &pod.Mutator{Base: desk}}, &admission.Webhook{Handler: &pod.Validator{Base: desk}}
			var mutated, validated int
			for number := range 3 {
				raw := trainingReview(t, 1, number)
				before := *asked
				_, answer := serveTimed(t, mutator, raw)
				if *asked > before {
					mutated++
				}
				before = *asked
				serveTimed(t, validator, patchedReview(t, raw, answer))
				if *asked > before {
					validated++
				}
			}
			// Who is still to be named has no name yet.
			if mutated != 1 || validated != tc.judged {
				t.Errorf("judged %d to be changed and %d in the end, want 1 and %d", mutated, validated, tc.judged)
			}
		})
	}
}

// Nobody is given the answer to another pod: whatever is different in one, the
// answer that is remembered is the one that would be given.
func TestCachedResponseDependsOnEveryField(t *testing.T) {
	sources := []engine.Source{{Name: "curious", Rego: volumeNamePolicy}}
	knowing, _ := newCountingBase(t, 0, sources...)
	mutator := &pod.Mutator{Base: knowing}
	forgetful, _ := newCountingBase(t, -1, sources...)
	ask := func(t *testing.T, object []byte) {
		t.Helper()
		request := decodeRequest(t, trainingReview(t, 1, 1))
		request.Object.Raw = object
		want := (&pod.Mutator{Base: forgetful}).Handle(t.Context(), request)
		got := mutator.Handle(t.Context(), request)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s\nremembered is otherwise (-given, +remembered):\n%s", object, diff)
		}
		for _, text := range append(slices.Clone(got.Warnings), string(got.Patch), got.Result.Message) {
			if strings.Contains(text, "kube-api-access-00000") && !strings.Contains(string(object), "kube-api-access-00000") {
				t.Errorf("the name that only policies see is told to others: %s", text)
			}
		}
	}
	base := decodeRequest(t, trainingReview(t, 1, 1)).Object.Raw
	ask(t, base)
	var pod any
	if err := json.Unmarshal(base, &pod); err != nil {
		t.Fatal(err)
	}
	replacements := []any{tokenVolumeName(1), tokenVolumeName(7), "kube-api-access-00000", float64(7)}
	forEachLeaf(pod, func(set func(any), old any) {
		for _, with := range replacements {
			if with == old {
				continue
			}
			set(with)
			raw, err := json.Marshal(pod)
			if err != nil {
				t.Fatal(err)
			}
			ask(t, raw)
		}
		set(old)
	})
}

// forEachLeaf visits all values of a document that hold no others, with what puts
// another in their place.
func forEachLeaf(in any, visit func(set func(any), old any)) {
	one := func(value any, set func(any)) {
		switch value.(type) {
		case map[string]any, []any:
			forEachLeaf(value, visit)
		default:
			visit(set, value)
		}
	}
	switch in := in.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(in)) {
			if key != "managedFields" {
				one(in[key], func(v any) { in[key] = v })
			}
		}
	case []any:
		for i := range in {
			one(in[i], func(v any) { in[i] = v })
		}
	}
}

// What an author calls as the API server would is told as it was called.
func TestResponsesUseOriginalVolumeNames(t *testing.T) {
	mine, other := tokenVolumeName(1), tokenVolumeName(2)
	directory := func(name string) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/refused"}}}
	}
	tests := map[string]struct {
		change func(*corev1.Pod)
		want   []string
	}{
		"one of an author's":     {func(p *corev1.Pod) { p.Spec.Volumes = append(p.Spec.Volumes, directory("mine")) }, []string{mine, "mine"}},
		"two of that kind":       {func(p *corev1.Pod) { p.Spec.Volumes = append(p.Spec.Volumes, directory(other)) }, []string{mine, other}},
		"one, and not the token": {func(p *corev1.Pod) { p.Spec.Volumes = append(p.Spec.Volumes[:2], directory(mine)) }, []string{mine}},
		"named as all are seen": {func(p *corev1.Pod) {
			p.Spec.Volumes = append(p.Spec.Volumes, directory("kube-api-access-00000"))
		}, []string{mine, "kube-api-access-00000"}},
		"named in a variable too": {func(p *corev1.Pod) {
			p.Spec.Volumes = append(p.Spec.Volumes[:2], directory(mine))
			p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, corev1.EnvVar{Name: "V", Value: "my-" + mine})
		}, []string{mine}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			desk, _ := newCountingBase(t, 0, engine.Source{Name: "curious", Rego: volumeNamePolicy})
			mutator := &pod.Mutator{Base: desk}
			// The same pod with another token's name is known then.
			for _, first := range []int{3, 1} {
				pod := trainingPod(1, 1)
				tc.change(pod)
				raw := encodeAdmissionReview(t, pod, 1)
				if first != 1 {
					raw = []byte(strings.ReplaceAll(string(raw), mine, tokenVolumeName(first)))
				}
				response := mutator.Handle(t.Context(), decodeRequest(t, raw))
				told := strings.Join(append(response.Warnings, response.Result.Message, string(response.Patch)), "\n")
				for _, want := range tc.want {
					if want == mine {
						want = tokenVolumeName(first)
					}
					if !strings.Contains(told, want) {
						t.Errorf("volume %s is not told of:\n%s", want, told)
					}
				}
			}
		})
	}
}
