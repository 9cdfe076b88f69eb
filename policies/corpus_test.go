// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policies_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/facts"
)

// campus are the projects of the corpus, by the word that its pods have for them;
// with the pools that `sluice up` has. Another has three pools that Kueue serves, of
// which no pod of the corpus speaks: two alike, and one with slices.
func campus(b bench) map[string]*court {
	pools := map[string]facts.Pool{"dgx": pool("dgx", v1alpha1.SharingNone, whole.Boards...), "dgx-mig": pool("dgx-mig", v1alpha1.SharingMIG, slices.Clone(cut.Boards)...)}
	for name, p := range pools {
		p.NodeSelector = map[string]string{v1alpha1.LabelNodePool: name}
		p.Tolerations = []corev1.Toleration{{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}
		p.Guaranteed, p.Limit = 2000, 4000
		if name == "dgx-mig" {
			p.Guaranteed, p.Limit = 1000, 2000
			// All that its boards can be cut into, whatever they are cut into now.
			p.Boards[0].Profiles = append(slices.Clone(p.Boards[0].Profiles), profile("1g.10gb", 10, 250), profile("4g.20gb", 20, 500))
		}
		pools[name] = p
	}
	for name, like := range map[string]string{"dgx-a": "dgx", "dgx-b": "dgx", "dgx-c": "dgx-mig"} {
		p := pools[like]
		p.Name, p.NodeSelector = name, map[string]string{v1alpha1.LabelNodePool: name}
		p.Scheduler, p.Currency = v1alpha1.SchedulerKueue, v1alpha1.ResourceGPUMilli
		pools[name] = p
	}
	courts := map[string]*court{}
	for word, names := range map[string][]string{"whole": {"dgx"}, "slices": {"dgx-mig"}, "both": {"dgx-mig", "dgx"}, "queued": {"dgx-a", "dgx-b", "dgx-c"}} {
		c := &court{bench: b, project: thesis}
		c.project.Name, c.project.Namespace, c.project.Department = "corpus-"+word, "corpus-"+word, "corpus"
		c.project.Limits = map[v1alpha1.WorkloadType]facts.Limits{}
		for _, t := range []v1alpha1.WorkloadType{v1alpha1.WorkloadTrain, v1alpha1.WorkloadInteractive, v1alpha1.WorkloadInference} {
			c.project.Limits[t] = facts.Limits{MaxRuntime: "48h", MaxRuntimeSeconds: 48 * 3600}
		}
		for _, name := range names {
			c.pools = append(c.pools, pools[name])
		}
		courts[word] = c
	}
	return courts
}

// specimen is a pod of the corpus, and what a real API server made of it.
type specimen struct {
	name, project string
	pod           corev1.Pod
	golden        struct {
		Refused string      `json:"refused"`
		Pod     *corev1.Pod `json:"pod"`
	}
}

func specimens(tb testing.TB) []specimen {
	tb.Helper()
	const corpus = "../test/testdata/pods"
	paths, err := filepath.Glob(corpus + "/*.yaml")
	if err != nil || len(paths) < 40 {
		tb.Fatalf("%d pods of the corpus (%v), want 40 or more", len(paths), err)
	}
	var all []specimen
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			tb.Fatal(err)
		}
		s := specimen{name: strings.TrimSuffix(filepath.Base(path), ".yaml")}
		for line := range strings.Lines(string(raw)) {
			if word, ok := strings.CutPrefix(line, "# project: "); ok {
				s.project = strings.TrimSpace(word)
			}
		}
		if err := yaml.UnmarshalStrict(raw, &s.pod); err != nil {
			tb.Fatalf("%s: %v", path, err)
		}
		golden := filepath.Join(corpus, "golden", filepath.Base(path))
		if raw, err = os.ReadFile(golden); err != nil {
			tb.Fatal(err)
		}
		if err := yaml.Unmarshal(raw, &s.golden); err != nil {
			tb.Fatalf("%s: %v", golden, err)
		}
		all = append(all, s)
	}
	return all
}

// untyped is a pod as the API server sends it.
func untyped(tb testing.TB, pod *corev1.Pod) map[string]any {
	tb.Helper()
	raw, err := json.Marshal(pod)
	if err != nil {
		tb.Fatal(err)
	}
	object, err := read(string(raw))
	if err != nil {
		tb.Fatal(err)
	}
	return object
}
