// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package replay_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/policies/engine"
	"sluice.dev/webhook/decisionlog"
	"sluice.dev/webhook/replay"
)

// recordCorpus answers the requests to create all example objects, twice, so that some answers come from the cache, and pods of a
// token volume of their own.
func recordCorpus(t *testing.T, r *recording) {
	t.Helper()
	for round := range 2 {
		for i, raw := range corpus(t) {
			var object map[string]any
			if err := json.Unmarshal(raw, &object); err != nil {
				t.Fatal(err)
			}
			if object["kind"] != "Pod" {
				for _, webhook := range []string{"workloads", "queued-workloads", "templates"} {
					r.answer(t, webhook, raw)
				}
				continue
			}
			spec, _ := object["spec"].(map[string]any)
			volumes, _ := spec["volumes"].([]any)
			spec["volumes"] = append(volumes, map[string]any{
				"name": fmt.Sprintf("kube-api-access-%c%cabc", 'b'+rune(i%20), 'b'+rune(round)), "emptyDir": map[string]any{},
			})
			metadata, _ := object["metadata"].(map[string]any)
			metadata["managedFields"] = []any{map[string]any{"manager": "kubectl"}}
			if response, after := r.answer(t, "pods", marshal(t, object)); response.Allowed {
				r.answer(t, replay.FinalPods, after)
			}
		}
	}
}

// A record with its whole input, and without masks, replays bit for bit under the same policies: the patch but for the stamp, the denials, the warnings
// and the annotations for the audit log are those that the webhook answered, also from its cache.
func TestWholeRecordsReplayBitForBit(t *testing.T) {
	cached := []engine.Source{
		newPolicy("team-latest", `deny contains sprintf("image %s", [c.image]) if { some c in input.object.spec.containers; contains(c.image, "nginx") }`),
		newPolicy("team-env", `overrides.spec.containers["*"].env := [{"name": "TEAM", "value": "thesis"}]`),
	}
	// No answer is cached with a policy that reads the time.
	timed := newPolicy("team-now", `warn contains sprintf("it is %s", [input.now]) if input.object.metadata.labels.app == "bert"`)
	counts := map[string]int{}
	replayCorpus(t, counts, cached...)
	if counts["cached"] == 0 {
		t.Error("no record was answered from the cache")
	}
	replayCorpus(t, counts, append(cached, timed)...)
	t.Log(counts)
	for _, part := range []string{"pods allowed=true", "pods allowed=false", "final-pods allowed=true", "workloads allowed=true", "patched", "warned"} {
		if counts[part] == 0 {
			t.Errorf("no record: %s", part)
		}
	}
}

// replayCorpus records the answers to all example objects, compares them with the replayed ones, and counts the kinds of records.
func replayCorpus(t *testing.T, counts map[string]int, more ...engine.Source) {
	t.Helper()
	r := newRecording(t, decisionlog.Options{Objects: true}, sources(more...)...)
	recordCorpus(t, r)
	replayer, err := replay.New(sources(more...), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, record := range r.records(t) {
		if record.Policies == "" {
			continue
		}
		result := replayer.Replay(t.Context(), record)
		if result.Outcome != replay.Same {
			t.Errorf("%s %s/%s: %s: %s %v", record.Webhook, record.ObjectKind, record.Name, result.Outcome, result.Reason, result.Policies)
		}
		answered := r.answers[record.UID]
		answered.Patch, result.Response.Patch = withoutStamp(answered.Patch), withoutStamp(result.Response.Patch)
		want, got := marshal(t, answered), marshal(t, result.Response)
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s %s/%s differs (-answered +replayed):\n%s", record.Webhook, record.ObjectKind, record.Name, diff)
		}
		counts[fmt.Sprint(record.Webhook, " allowed=", record.Allowed)]++
		if record.Cached {
			counts["cached"]++
		}
		if len(record.Patch) > 0 {
			counts["patched"]++
		}
		if len(record.Warnings) > 0 {
			counts["warned"]++
		}
	}
}

// stampPattern matches the annotation with what the pod was evaluated under: the replayed policies, and a tenant of a record, which has
// not all that the version of a tenant covers.
var stampPattern = regexp.MustCompile(`(evaluated-under"(?:,"value")?:")[0-9a-f,]+`)

func withoutStamp(patch []byte) []byte { return stampPattern.ReplaceAll(patch, []byte("$1")) }

// With the masks of the default, the built-in policies read nothing that is masked, and decide as they did.
func TestBuiltInPoliciesReadNothingMaskedByDefault(t *testing.T) {
	r := newRecording(t, decisionlog.Options{Objects: true, Mask: decisionlog.DefaultMask, Unmasked: decisionlog.DefaultUnmasked}, sources()...)
	recordCorpus(t, r)
	for _, webhook := range []string{"pods", "templates"} {
		r.answer(t, webhook, secretObject(t, webhook))
	}
	replayer, err := replay.New(sources(), nil)
	if err != nil {
		t.Fatal(err)
	}
	masked := 0
	for _, record := range r.records(t) {
		if record.Policies == "" {
			continue
		}
		result := replayer.Replay(t.Context(), record)
		if result.Outcome != replay.Same {
			t.Errorf("%s %s/%s: %s: %s %v", record.Webhook, record.ObjectKind, record.Name, result.Outcome, result.Reason, result.Policies)
		}
		masked += len(record.Masked)
	}
	if masked == 0 {
		t.Error("nothing is masked")
	}
}

// secretObject returns a pod or a Job with a secret at each place of the default masks.
func secretObject(t *testing.T, webhook string) []byte {
	t.Helper()
	pod := `
metadata: {name: secretive, annotations: {example.org/token: secret-0, sluice.dev/gpu: 500m, sluice.dev/node-pools: dgx-mig}}
spec:
  initContainers:
  - {name: init, image: "registry.example.org/init:v1", command: [sh, -c, "login secret-1"]}
  containers:
  - name: main
    image: registry.example.org/train:v1
    args: ["--password=secret-2"]
    env: [{name: TOKEN, value: secret-3}, {name: PUBLIC, value: "1"}, {name: NVIDIA_VISIBLE_DEVICES, value: all}]
    lifecycle: {postStart: {exec: {command: [curl, secret-4]}}}
    readinessProbe: {httpGet: {port: 80, httpHeaders: [{name: Authorization, value: secret-5}]}}
  volumes:
  - {name: a, csi: {driver: x, volumeAttributes: {key: secret-6}}}
  - {name: b, flexVolume: {driver: x, options: {key: secret-7}}}
  restartPolicy: Never
`
	if webhook == "pods" {
		return fromYAML(t, "apiVersion: v1\nkind: Pod"+pod)
	}
	return fromYAML(t, "apiVersion: batch/v1\nkind: Job\nmetadata: {name: secretive}\nspec:\n  template:"+strings.ReplaceAll(pod, "\n", "\n    "))
}

// What is masked is in no part of a record, and a policy that reads it cannot be replayed, whatever it would decide.
func TestPolicyThatReadsWhatIsMaskedIsNotReplayed(t *testing.T) {
	r := newRecording(t, decisionlog.Options{Objects: true, Mask: decisionlog.DefaultMask, Unmasked: decisionlog.DefaultUnmasked},
		newPolicy("former", `warn contains "a" if input.object.spec.hostNetwork`))
	if response, _ := r.answer(t, "pods", secretObject(t, "pods")); !response.Allowed {
		t.Fatal(response.Result.Message)
	}
	record := r.records(t)[0]
	if at := strings.Index(r.log.String(), "secret-"); at >= 0 {
		t.Errorf("the record has a secret: %s", r.log.String()[max(0, at-100):at+20])
	}
	for name, tc := range map[string]struct {
		policy engine.Source
		want   replay.Outcome
	}{
		"value of a variable":   {newPolicy("p", `deny contains "no" if { some c in input.object.spec.containers; some e in c.env; e.value == "secret-3" }`), replay.NotReplayed},
		"not a value":           {newPolicy("p", `deny contains "no" if not input.object.spec.containers[0].env[0].value == "secret-3"`), replay.NotReplayed},
		"name of a variable":    {newPolicy("p", `deny contains "no" if { some c in input.object.spec.containers; some e in c.env; e.name == "TOKEN" }`), replay.NowDenied},
		"number of arguments":   {newPolicy("p", `deny contains "no" if count(input.object.spec.containers[0].args) == 1`), replay.NowDenied},
		"an argument":           {newPolicy("p", `deny contains "no" if startswith(input.object.spec.containers[0].args[0], "(masked")`), replay.NotReplayed},
		"the whole object":      {newPolicy("p", `deny contains "no" if contains(json.marshal(input.object), "never")`), replay.NotReplayed},
		"through the review":    {newPolicy("p", `deny contains "no" if input.review.object.metadata.annotations["example.org/token"] == "x"`), replay.NotReplayed},
		"an unmasked one":       {newPolicy("p", `deny contains "no" if input.object.metadata.annotations["sluice.dev/gpu"] == "500m"`), replay.NowDenied},
		"key of an annotation":  {newPolicy("p", `deny contains "no" if input.object.metadata.annotations["example.org/token"]`), replay.NowDenied},
		"of the namespace":      {newPolicy("p", `deny contains "no" if not input.namespace.annotations["example.org/token"] == "secret-7"`), replay.NotReplayed},
		"name of the namespace": {newPolicy("p", `deny contains "no" if input.namespace.name == "thesis"`), replay.NowDenied},
		"the image":             {newPolicy("p", `deny contains "no" if input.object.spec.containers[0].image == "other"`), replay.Same},
		"override of an arg":    {newPolicy("p", `overrides.spec.containers["0"].args := ["x"]`), replay.NotReplayed},
		"override of a value":   {newPolicy("p", `overrides.spec.containers["0"].env := [{"name": "TOKEN", "value": "x"}]`), replay.NotReplayed},
		"default of a value":    {newPolicy("p", `defaults.spec.containers["0"].env := [{"name": "TOKEN", "value": "x"}]`), replay.Same},
		"another variable":      {newPolicy("p", `overrides.spec.containers["0"].env := [{"name": "OTHER", "value": "x"}]`), replay.Changed},
		"the time":              {newPolicy("p", `deny contains "no" if input.now == "x"`), replay.Same},
		"the time and a secret": {newPolicy("p", `deny contains "no" if { input.now == "x"; input.object.spec.containers[0].env[0].value == "x" }`), replay.NotReplayed},
		"the type by a secret":  {newPolicy("p", `type := "interactive" if input.object.spec.containers[0].env[0].value == "x"`), replay.NotReplayed},
		"a policy that fails":   {newPolicy("p", `deny contains "no" if to_number("x") == 1`), replay.NowDenied},
	} {
		t.Run(name, func(t *testing.T) {
			replayer, err := replay.New([]engine.Source{tc.policy}, nil)
			if err != nil {
				t.Fatal(err)
			}
			result := replayer.Replay(t.Context(), record)
			if result.Outcome != tc.want {
				t.Errorf("%s: %s, want %s; %v %s", result.Outcome, result.Reason, tc.want, result.Policies, result.Now.Message)
			}
			if result.Outcome != replay.Same && !slices.Contains(result.Policies, "p") {
				t.Errorf("policies %v, want p", result.Policies)
			}
		})
	}
}

// A decision of a policy that reads data is repeated only with the data of then, of which the record has the digest. Data that other
// policies read do not count.
func TestReplayOfPoliciesThatReadData(t *testing.T) {
	dataOf := func(image, other string) *engine.Data {
		var configs []engine.ConfigData
		for name, value := range map[string]string{"images": image, "other": other} {
			config, err := engine.NewConfigData(name, map[string]any{"refused": value})
			if err != nil {
				t.Fatal(err)
			}
			configs = append(configs, config)
		}
		return engine.NewData(configs, nil)
	}
	reading := newPolicy("team-data", `deny contains "no" if input.object.spec.containers[_].image == data.config.images.refused`)
	more := newPolicy("team-other", `deny contains "other" if input.object.metadata.name == data.config.other.refused`)
	r := newRecordingWithData(t, dataOf("a:1", "x"), decisionlog.Options{Objects: true}, sources(reading)...)
	pod := []byte(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"name": "main", "image": "a:1"}]}}`)
	if response, _ := r.answer(t, "pods", pod); response.Allowed {
		t.Fatal("the pod is admitted")
	}
	record := r.records(t)[0]
	without := *record
	input := *record.Input
	input.Data, without.Input = nil, &input
	for name, tc := range map[string]struct {
		record  *decisionlog.Record
		data    *engine.Data
		sources []engine.Source
		outcome replay.Outcome
		reason  string
	}{
		"the same data":                {record, dataOf("a:1", "y"), sources(reading), replay.Same, ""},
		"other data":                   {record, dataOf("a:2", "x"), sources(reading), replay.NotReplayed, "data.config.images: data of its time are not recorded"},
		"no data":                      {record, nil, sources(reading), replay.NotReplayed, "data.config.images: data of its time are not recorded"},
		"data that no policy read":     {record, dataOf("a:1", "x"), sources(reading, more), replay.NotReplayed, "data.config.other: data of its time are not recorded"},
		"a record without digests":     {&without, dataOf("a:1", "x"), sources(reading), replay.NotReplayed, "data.config.images: data of its time are not recorded"},
		"policies that read no data":   {record, dataOf("a:2", "x"), sources(), replay.NowAllowed, ""},
		"no digests, and no data read": {&without, nil, sources(), replay.NowAllowed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			replayer, err := replay.New(tc.sources, tc.data)
			if err != nil {
				t.Fatal(err)
			}
			if got := replayer.Replay(t.Context(), tc.record); got.Outcome != tc.outcome || !strings.Contains(got.Reason, tc.reason) {
				t.Errorf("%s, %q; want %s, %q", got.Outcome, got.Reason, tc.outcome, tc.reason)
			}
		})
	}
}
