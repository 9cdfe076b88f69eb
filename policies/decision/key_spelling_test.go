// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/policies/engine"
)

// checkedKeys returns the findings on the labels and annotations of a pod, as text.
func checkedKeys(labels, annotations []string, form workload.Form, schedulers ...v1alpha1.Scheduler) (denials, warnings []string) {
	object := map[string]any{"metadata": map[string]any{"labels": keysOf(labels), "annotations": keysOf(annotations)}}
	denied, warned := CheckKeys(object, &workload.Request{Form: form}, engine.SchedulersOf(schedulers...))
	for _, finding := range denied {
		denials = append(denials, FormatMessage(finding))
	}
	for _, finding := range warned {
		warnings = append(warnings, FormatMessage(finding))
	}
	return denials, warnings
}

func keysOf(keys []string) map[string]any {
	values := map[string]any{}
	for _, key := range keys {
		values[key] = "1"
	}
	return values
}

func TestCheckKeys(t *testing.T) {
	const authors = "authors of pods may set sluice.dev/gpu, sluice.dev/gpu-memory-limit, sluice.dev/max-runtime, sluice.dev/node-pools, " +
		"sluice.dev/workload-type"
	for _, tc := range []struct {
		name                string
		labels, annotations []string
		form                workload.Form
		denied, warned      []string
	}{
		{"no keys", nil, nil, workload.FormNone, nil, nil},
		{
			"a misspelled fraction of a pod without a GPU", nil,
			[]string{"gpu-fractoin"},
			workload.FormNone,
			[]string{"metadata.annotations[gpu-fractoin]: has no meaning to Sluice; did you mean the annotation gpu-fraction?"},
			nil,
		},
		{
			"a misspelled fraction of a pod with a GPU", nil,
			[]string{"gpu-fractoin"},
			workload.FormWhole, nil,
			[]string{"metadata.annotations[gpu-fractoin]: has no meaning to Sluice; did you mean the annotation gpu-fraction?"},
		},
		{
			"a fraction as a label",
			[]string{"gpu-fraction"},
			nil, workload.FormNone,
			[]string{"metadata.labels[gpu-fraction]: is no label but an annotation, and has no effect; set it as an annotation"},
			nil,
		},
		{
			"a type as an annotation", nil,
			[]string{"sluice.dev/workload-type"},
			workload.FormNone, nil,
			[]string{"metadata.annotations[sluice.dev/workload-type]: is no annotation but a label, and has no effect; set it as a label"},
		},
		{
			"a type without its domain",
			[]string{"workload-type"},
			nil, workload.FormNone, nil,
			[]string{"metadata.labels[workload-type]: has no meaning to Sluice; did you mean the label sluice.dev/workload-type?"},
		},
		{
			"a misspelled domain", nil,
			[]string{"sluce.dev/node-pools"},
			workload.FormNone, nil,
			[]string{"metadata.annotations[sluce.dev/node-pools]: has no meaning to Sluice; did you mean the annotation sluice.dev/node-pools?"},
		},
		{
			"an underscore", nil,
			[]string{"gpu_memory"},
			workload.FormNone,
			[]string{"metadata.annotations[gpu_memory]: has no meaning to Sluice; did you mean the annotation gpu-memory?"},
			nil,
		},
		{
			"another key of Sluice", nil,
			[]string{"sluice.dev/priority"},
			workload.FormNone, nil,
			[]string{"metadata.annotations[sluice.dev/priority]: is no label or annotation of Sluice, and has no effect; " + authors},
		},
		{"a word like gpu", nil, []string{"sluice.dev/cpux"}, workload.FormNone, nil, []string{"metadata.annotations[sluice.dev/cpux]: is no label or annotation of Sluice, and has no effect; " + authors}},
		{
			"Run:ai",
			[]string{"runai/queue", "run.ai/project"},
			nil, workload.FormWhole, nil,
			[]string{
				"metadata.labels[run.ai/project]: is a key of Run:ai, which has no effect in this project; the namespace names the project; " +
					"see sluice.dev/workload-type, sluice.dev/node-pools and gpu-fraction",
				"metadata.labels[runai/queue]: is a key of Run:ai, which has no effect in this project; the namespace names the project; " +
					"see sluice.dev/workload-type, sluice.dev/node-pools and gpu-fraction",
			},
		},
		{
			"Kueue",
			[]string{v1alpha1.LabelKueueQueue},
			nil, workload.FormWhole, nil,
			[]string{"metadata.labels[kueue.x-k8s.io/queue-name]: is a key of Kueue, which serves no node pool of this project, and has no effect; " +
				"remove it: the project's quota needs no queue"},
		},
		{
			"others' keys",
			[]string{"app", "gpu-type", "app.kubernetes.io/name", "hub.jupyter.org/username", "gpu", "type"},
			[]string{"kubectl.kubernetes.io/default-container", "example.org/max-runtime", "sim.sluice.dev/run-for", "memory", "gpu-driver"},
			workload.FormNone, nil, nil,
		},
		{"keys that Sluice wrote", []string{v1alpha1.LabelProject, v1alpha1.LabelNodePool}, v1alpha1.ManagedKeys()[:1], workload.FormNone, nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			denied, warned := checkedKeys(tc.labels, tc.annotations, tc.form, v1alpha1.SchedulerKube)
			if diff := cmp.Diff([][]string{tc.denied, tc.warned}, [][]string{denied, warned}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Keys of Kueue and KAI-Scheduler have a meaning in the projects that they serve.
func TestKeysOfTheProjectsSchedulers(t *testing.T) {
	labels := []string{v1alpha1.LabelKueueQueue, "runai/queue"}
	if denied, warned := checkedKeys(labels, nil, workload.FormWhole, v1alpha1.SchedulerKueue, v1alpha1.SchedulerKAI); len(denied)+len(warned) > 0 {
		t.Errorf("denied %q, warned %q", denied, warned)
	}
}

// No key that is known, by Sluice or in others' domains, is a mistake, and each key with one slip is.
func TestSlips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SampledFrom(authorKeyNames).Draw(t, "key")
		if meant := similarKey(key); meant != key {
			t.Fatalf("%s is similar to %q", key, meant)
		}
		i := rapid.IntRange(1, len(key)-2).Draw(t, "place")
		slip := rapid.SampledFrom([]string{key[:i] + key[i+1:], key[:i] + "x" + key[i:], key[:i] + string(key[i+1]) + string(key[i]) + key[i+2:]}).Draw(t, "slip")
		if _, known := authorKeys[slip]; known || slip == key {
			return
		}
		if meant := similarKey(slip); meant == "" && !strings.HasSuffix(key, "/gpu") {
			t.Fatalf("%s is similar to no key", slip)
		}
	})
}

func FuzzSimilarKey(f *testing.F) {
	for _, seed := range []string{"gpu-fractoin", "workload-type", "", strings.Repeat("g", 100), "sluice.dev/", "gpu-\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, key string) {
		meant := similarKey(key)
		if _, known := authorKeys[meant]; meant != "" && !known {
			t.Errorf("%q is similar to %q", key, meant)
		}
	})
}
