// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package replay_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies"
	"sluice.dev/policies/decision"
	"sluice.dev/policies/engine"
	"sluice.dev/webhook/decisionlog"
	"sluice.dev/webhook/evaluation"
	"sluice.dev/webhook/pod"
	"sluice.dev/webhook/replay"
	"sluice.dev/webhook/workload"
)

// fixedTenants is one project that owns every namespace.
type fixedTenants struct{ tenant *decision.Tenant }

func (f fixedTenants) Resolve(context.Context, string) (*decision.Tenant, error) {
	return f.tenant, nil
}

func (f fixedTenants) ResolveForPod(context.Context, *admission.Request) (*decision.Tenant, error) {
	return f.tenant, nil
}

// newTenant returns a project with quota in a pool of whole GPUs, one of MIG and one of Kueue.
func newTenant(tb testing.TB) *decision.Tenant {
	tb.Helper()
	quota := v1alpha1.GPUQuota{Guaranteed: resource.MustParse("2"), Limit: resource.MustParse("4")}
	from := decision.TenantSources{
		Department: &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "students"}},
		Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: "thesis", Annotations: map[string]string{"example.org/token": "secret-7", "sluice.dev/managed": "yes"},
		}},
		Project: &v1alpha1.Project{
			ObjectMeta: metav1.ObjectMeta{Name: "thesis", Generation: 1},
			Spec:       v1alpha1.ProjectSpec{Department: "students"},
			Status: v1alpha1.ProjectStatus{
				Conditions: []metav1.Condition{{Type: v1alpha1.ConditionQuotaApplied, Status: metav1.ConditionTrue, ObservedGeneration: 1}},
				NodePools:  []v1alpha1.PoolUsage{{Name: "dgx", GPUUsage: v1alpha1.GPUUsage{Limit: resource.MustParse("4")}}, {Name: "dgx-mig", GPUUsage: v1alpha1.GPUUsage{Limit: resource.MustParse("4")}}, {Name: "batch", GPUUsage: v1alpha1.GPUUsage{Limit: resource.MustParse("4")}}},
			},
		},
	}
	for name, scheduler := range map[string]v1alpha1.Scheduler{"dgx": v1alpha1.SchedulerKube, "dgx-mig": v1alpha1.SchedulerKube, "batch": v1alpha1.SchedulerKueue} {
		model := v1alpha1.GPUModel{Name: "NVIDIA-A100-SXM4-40GB", MemoryMiB: 40960, GPUs: 8}
		sharing := v1alpha1.SharingNone
		if name == "dgx-mig" {
			sharing, model.MIGProfiles = v1alpha1.SharingMIG, []v1alpha1.MIGProfile{"1g.5gb", "2g.10gb", "3g.20gb"}
		}
		from.NodePools = append(from.NodePools, v1alpha1.NodePool{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1alpha1.NodePoolSpec{
				Scheduler: scheduler, Sharing: sharing, NodeSelector: map[string]string{"sluice.dev/node-pool": name},
				Tolerations: []corev1.Toleration{{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}},
			},
			Status: v1alpha1.NodePoolStatus{GPUs: 8, Products: []v1alpha1.GPUModel{model}},
		})
	}
	for _, name := range []string{"dgx", "dgx-mig", "batch"} {
		from.Project.Spec.NodePools = append(from.Project.Spec.NodePools, v1alpha1.PoolQuota{Name: name, GPU: quota})
	}
	tenant, err := decision.NewTenant(from)
	if err != nil {
		tb.Fatal(err)
	}
	return tenant
}

// recording is a webhook that records its decisions.
type recording struct {
	log      bytes.Buffer
	answers  map[string]admission.Response
	handlers map[string]admission.Handler
	decided  *decisionlog.Log
	uid      int
}

// newRecording returns a webhook with these policies.
func newRecording(tb testing.TB, options decisionlog.Options, active ...engine.Source) *recording {
	tb.Helper()
	return newRecordingWithData(tb, nil, options, active...)
}

// newRecordingWithData is newRecording with data that the policies read.
func newRecordingWithData(tb testing.TB, data *engine.Data, options decisionlog.Options, active ...engine.Source) *recording {
	tb.Helper()
	policyEngine, err := engine.New(engine.Options{
		Libraries: policies.Libraries(), Limits: engine.Limits{Evaluation: time.Minute, Request: time.Minute},
	})
	if err != nil {
		tb.Fatal(err)
	}
	policyEngine.UpdateData(data)
	for _, report := range policyEngine.Update(active) {
		for _, problem := range report.Problems {
			tb.Fatal(problem)
		}
	}
	r := &recording{answers: make(map[string]admission.Response)}
	options.Output = &r.log
	if r.decided, err = decisionlog.New(options); err != nil {
		tb.Fatal(err)
	}
	base := evaluation.Base{
		Evaluator: &evaluation.Evaluator{Engine: policyEngine, Clock: policytime.System()}, Tenants: fixedTenants{newTenant(tb)},
	}
	r.handlers = map[string]admission.Handler{
		"pods": &pod.Mutator{Base: base}, replay.FinalPods: &pod.Validator{Base: base}, "workloads": &workload.Mutator{Base: base},
		"queued-workloads": &workload.Mutator{Base: base, FailClosed: true}, "templates": &workload.Validator{Base: base},
	}
	return r
}

// sources returns the built-in policies and more ones.
func sources(more ...engine.Source) []engine.Source { return append(policies.BuiltIn(), more...) }

// newPolicy returns a policy with these rules.
func newPolicy(name, rules string) engine.Source {
	return engine.Source{Name: name, Rego: "package " + strings.ReplaceAll(name, "-", "_") + "\n" + rules}
}

// answer answers a request to create an object, and returns the response and the object with its patch.
func (r *recording) answer(tb testing.TB, webhook string, raw []byte) (admission.Response, []byte) {
	tb.Helper()
	var meta metav1.TypeMeta
	if err := json.Unmarshal(raw, &meta); err != nil {
		tb.Fatal(err)
	}
	r.uid++
	kind := schema.FromAPIVersionAndKind(meta.APIVersion, meta.Kind)
	request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UID: types.UID(fmt.Sprintf("uid-%d", r.uid)), Operation: admissionv1.Create, Namespace: "thesis",
		Kind:     metav1.GroupVersionKind{Group: kind.Group, Version: kind.Version, Kind: kind.Kind},
		Resource: metav1.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: strings.ToLower(kind.Kind) + "s"},
	}}
	request.UserInfo.Username, request.UserInfo.Groups = "anna@example.org", []string{"system:authenticated"}
	request.Object.Raw = raw
	response := evaluation.NewRecorder(webhook, r.decided, r.handlers[webhook]).Handle(tb.Context(), request)
	r.answers[string(request.UID)] = response
	if len(response.Patch) == 0 {
		return response, raw
	}
	patch, err := jsonpatch.DecodePatch(response.Patch)
	if err != nil {
		tb.Fatal(err)
	}
	after, err := patch.Apply(raw)
	if err != nil {
		tb.Fatal(err)
	}
	return response, after
}

// records ends the recording and returns the records.
func (r *recording) records(tb testing.TB) []*decisionlog.Record {
	tb.Helper()
	r.decided.Close()
	reader, err := decisionlog.NewReader(bytes.NewReader(r.log.Bytes()))
	if err != nil {
		tb.Fatal(err)
	}
	var all []*decisionlog.Record
	for {
		line, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			tb.Fatal(err)
		}
		record, err := decisionlog.Parse(line)
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, record)
	}
}

// corpus returns the example objects on which policies are checked.
func corpus(tb testing.TB) [][]byte {
	tb.Helper()
	file, err := os.Open("../../policies/check/corpus/pods.yaml")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	decoder := utilyaml.NewYAMLOrJSONDecoder(file, 4096)
	var objects [][]byte
	for {
		var object map[string]any
		if err := decoder.Decode(&object); errors.Is(err, io.EOF) {
			return objects
		} else if err != nil {
			tb.Fatal(err)
		}
		objects = append(objects, marshal(tb, object))
	}
}

func marshal(tb testing.TB, object any) []byte {
	tb.Helper()
	raw, err := json.Marshal(object)
	if err != nil {
		tb.Fatal(err)
	}
	return raw
}

// fromYAML returns the JSON of an object.
func fromYAML(tb testing.TB, text string) []byte {
	tb.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	return raw
}
