// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workloadkind_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"sluice.dev/api/workloadkind"
)

func templateHash(t *testing.T, kind schema.GroupKind, rest string) string {
	t.Helper()
	return workloadkind.TemplateHash(kind, newObject(t, kind, rest).Object)
}

const containerYAML = `{image: torch, command: [python, train.py], env: [{name: SEED, value: "1"}]}`

// What is the same under another name, or in another kind, is recognized; and so
// it is after admission had its way with the pod.
func TestTemplateHashOfCopyIsEqual(t *testing.T) {
	want := templateHash(t, groupKind("apps", "Deployment"), `{metadata: {name: a}, spec: {template: {spec: {containers: [`+containerYAML+`]}}}}`)
	if len(want) != 32 {
		t.Fatalf("the hash is %q", want)
	}
	for name, tc := range map[string]struct {
		kind schema.GroupKind
		rest string
	}{
		"another name":                {groupKind("apps", "Deployment"), `{metadata: {name: b}, spec: {replicas: 3, template: {metadata: {labels: {app: b}}, spec: {containers: [` + containerYAML + `]}}}}`},
		"another kind":                {groupKind("batch", "Job"), `spec: {suspend: true, template: {spec: {restartPolicy: Never, containers: [` + containerYAML + `]}}}`},
		"a bare pod":                  {groupKind("", "Pod"), `spec: {containers: [` + containerYAML + `]}`},
		"another size":                {groupKind("", "Pod"), `spec: {containers: [{image: torch, command: [python, train.py], env: [{name: SEED, value: "1"}], resources: {limits: {nvidia.com/gpu: 8}}}]}`},
		"another place":               {groupKind("", "Pod"), `spec: {nodeName: n, schedulerName: s, tolerations: [{}], containers: [` + containerYAML + `]}`},
		"as stored by the API server": {groupKind("", "Pod"), `spec: {volumes: [{name: kube-api-access-x7k2p, projected: {}}, {emptyDir: {}}], containers: [{image: torch, command: [python, train.py], volumeMounts: [{name: kube-api-access-x7k2p}], env: [{name: NVIDIA_VISIBLE_DEVICES, value: void}, {name: SEED, value: "1"}]}]}`},
	} {
		if got := templateHash(t, tc.kind, tc.rest); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func TestTemplateHashOfOtherProgramDiffers(t *testing.T) {
	specs := []string{
		`{containers: [` + containerYAML + `]}`,
		`{containers: [{image: torch, command: [python, eval.py], env: [{name: SEED, value: "1"}]}]}`,
		`{containers: [{image: jax, command: [python, train.py], env: [{name: SEED, value: "1"}]}]}`,
		`{containers: [{image: torch, command: [python, train.py], env: [{name: SEED, value: "2"}]}]}`,
		`{containers: [{image: torch, command: [python], args: [train.py], env: [{name: SEED, value: "1"}]}]}`,
		`{containers: [` + containerYAML + `, ` + containerYAML + `]}`,
		`{volumes: [{configMap: {name: sweep-1}}], containers: [` + containerYAML + `]}`,
		`{volumes: [{configMap: {name: sweep-2}}], containers: [` + containerYAML + `]}`,
		`{volumes: [{persistentVolumeClaim: {claimName: annas-home}}], containers: [` + containerYAML + `]}`,
	}
	kindByHash := map[string]string{}
	for _, spec := range specs {
		hash := templateHash(t, groupKind("", "Pod"), "spec: "+spec)
		if before, is := kindByHash[hash]; is {
			t.Errorf("%s and %s have the same hash", before, spec)
		}
		kindByHash[hash] = spec
	}
}

// Kinds without pod templates are compared by their spec, stopped or not.
func TestTemplateHashWithoutTemplates(t *testing.T) {
	trainJob, workflow := groupKind("trainer.kubeflow.org", "TrainJob"), groupKind("argoproj.io", "Workflow")
	const rest = `trainer: {image: torch}, runtimeRef: {name: torch}`
	want := templateHash(t, trainJob, `spec: {`+rest+`}`)
	if want == "" || templateHash(t, trainJob, `spec: {suspend: true, `+rest+`}`) != want {
		t.Error("a suspended one is another")
	}
	if templateHash(t, trainJob, `spec: {trainer: {image: jax}, runtimeRef: {name: torch}}`) == want {
		t.Error("another image is the same")
	}
	if templateHash(t, workflow, `spec: {`+rest+`}`) == want {
		t.Error("another kind's spec is the same")
	}
	if a := templateHash(t, groupKind("example.org", "Unknown"), `spec: {size: 1, suspend: true}`); a == "" || a != templateHash(t, groupKind("example.org", "Unknown"), `spec: {size: 1}`) {
		t.Error("a kind that is not known has no hash")
	}
}

func TestTemplateHashOfEmptyObject(t *testing.T) {
	for _, rest := range []string{`{}`, `spec: {}`, `spec: 7`, `spec: {template: []}`, `spec: {template: {spec: {containers: []}}}`, `spec: {template: {spec: {containers: 7}}}`} {
		if got := templateHash(t, groupKind("batch", "Job"), rest); got != "" {
			t.Errorf("%s: %q", rest, got)
		}
	}
	if got := templateHash(t, groupKind("trainer.kubeflow.org", "TrainJob"), `spec: {suspend: true}`); got != "" {
		t.Errorf("a TrainJob of nothing: %q", got)
	}
	odd := map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"image": math.NaN()}}}}
	if got := workloadkind.TemplateHash(groupKind("", "Pod"), odd); got != "" {
		t.Errorf("no JSON: %q", got)
	}
}

// However the numbers were decoded, the hash is the same, and the object is left
// as it was.
func TestTemplateHashDoesNotMutate(t *testing.T) {
	const raw = `{"spec":{"suspend":true,"size":3}}`
	var plain map[string]any
	if err := json.Unmarshal([]byte(raw), &plain); err != nil {
		t.Fatal(err)
	}
	if workloadkind.TemplateHash(groupKind("example.org", "X"), plain) != templateHash(t, groupKind("example.org", "X"), raw) {
		t.Error("3.0 and 3 differ")
	}
	if after, err := json.Marshal(plain); err != nil || !strings.Contains(string(after), `"suspend":true`) {
		t.Errorf("changed to %s (%v)", after, err)
	}
}

func BenchmarkTemplateHash(b *testing.B) {
	job := map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{
		"image": "torch", "command": []any{"python", "train.py"}, "env": []any{map[string]any{"name": "SEED", "value": "1"}},
	}}}}}}
	b.ReportAllocs()
	for b.Loop() {
		workloadkind.TemplateHash(schema.GroupKind{Group: "batch", Kind: "Job"}, job)
	}
}
