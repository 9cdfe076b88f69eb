// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policies_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/policies"
	"sluice.dev/policies/decision"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/engine/document"
	"sluice.dev/policies/input"
	"sluice.dev/policies/merge"
	"sluice.dev/policies/merge/schema"
)

// policySets has the same policies twice. The second set has another order and no cache; both must
// have the same results.
type policySets struct{ set, shuffled *engine.Set }

// compilePolicies compiles the built-in policies and further policies. The named policies get other
// parameters than by default.
func compilePolicies(tb testing.TB, parameters map[string]string, more ...engine.Source) policySets {
	tb.Helper()
	sources := append(policies.BuiltIn(), more...)
	for i := range sources {
		if other, ok := parameters[sources[i].Name]; ok {
			sources[i].Parameters = []byte(other)
		}
	}
	compile := func(cacheEntries int) *engine.Set {
		set, reports, err := engine.Compile(sources, engine.Options{
			Libraries: policies.Libraries(), CacheEntries: cacheEntries,
			Limits: engine.Limits{Evaluation: time.Minute, Request: time.Minute}, // the fuzzer is not alone on the machine
		})
		if err != nil {
			tb.Fatal(err)
		}
		for _, report := range reports {
			for _, problem := range report.Problems {
				tb.Fatal(problem)
			}
		}
		return set
	}
	set := compile(0)
	slices.Reverse(sources)
	return policySets{set, compile(-1)}
}

// policyTester evaluates pods for one project.
type policyTester struct {
	policySets
	project input.Project
	pools   []input.NodePool
	// user creates the pods; anna if it is empty.
	user string
}

// podEvaluation is the result of the policies for one pod.
type podEvaluation struct {
	pod map[string]any
	// rejection is why the pod is refused before policies can change it.
	rejection string
	denials   map[string][]string
	changes   map[string]merge.DesiredChanges
}

// evaluate evaluates a pod with a set. An error is a fault of the policies.
func (c *policyTester) evaluate(ctx context.Context, set *engine.Set, pod map[string]any) (*podEvaluation, error) {
	o := &podEvaluation{pod: pod, denials: map[string][]string{}, changes: map[string]merge.DesiredChanges{}}
	var object corev1.Pod
	if err := json.Unmarshal([]byte(encodePod(pod)), &object); err != nil {
		return nil, err
	}
	request, fault := parseRequest(&object)
	if o.rejection = fault; fault != "" {
		return o, nil
	}
	in, err := c.input(pod, &request)
	if err != nil {
		return nil, err
	}
	if request.Type == "" {
		if request.Type, err = set.WorkloadType(ctx, in); err != nil {
			return nil, err
		}
		if in.Workload, err = document.FromGo(request); err != nil {
			return nil, err
		}
	}
	outcome, err := set.Evaluate(ctx, in)
	if err != nil {
		return nil, err
	}
	for _, failure := range outcome.Failures {
		return nil, fmt.Errorf("%s failed: %w", failure.Policy, failure.Err)
	}
	for _, denial := range outcome.Denials {
		o.denials[denial.Policy] = append(o.denials[denial.Policy], denial.Message)
	}
	for _, wants := range outcome.Changes {
		o.changes[wants.Policy] = wants
	}
	return o, nil
}

// parseRequest returns the request of a pod, or why it is invalid.
func parseRequest(pod *corev1.Pod) (request workload.Request, fault string) {
	request, err := workload.ParsePod(pod)
	if err != nil {
		return request, err.Error()
	}
	annotations := map[string]any{}
	for key, value := range pod.Annotations {
		annotations[key] = value
	}
	object := map[string]any{"metadata": map[string]any{"annotations": annotations}}
	if denials, _ := decision.CheckKeys(object, &request, ""); len(denials) > 0 {
		fault = denials[0].Message
	}
	return request, fault
}

func (c *policyTester) input(pod map[string]any, request *workload.Request) (engine.Input, error) {
	user := c.user
	if user == "" {
		user = "anna"
	}
	in := engine.Input{
		Subject: engine.Subject{Operation: v1alpha1.OperationCreate, Kind: "Pod", Department: c.project.Department, Project: c.project.Name},
		Now:     time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC),
	}
	for _, part := range []struct {
		document *document.Document
		value    any
	}{
		{&in.Review, map[string]any{"operation": "CREATE", "userInfo": map[string]any{"username": user}}},
		{&in.Object, pod},
		{&in.Workload, request},
		{&in.Project, c.project},
		{&in.NodePools, c.pools},
	} {
		var err error
		if *part.document, err = document.FromGo(part.value); err != nil {
			return in, err
		}
	}
	return in, nil
}

// deniedOutcome replaces the outcome of a refused pod.
const deniedOutcome = "refused"

// apply applies the changes of the named policies at once; ok is false if the pod is refused. An
// error is a fault of the policies.
func (o *podEvaluation) apply(names ...string) (result merge.Result, ok bool, err error) {
	var intents []merge.DesiredChanges
	for _, name := range names {
		if o.rejection != "" || len(o.denials[name]) > 0 {
			return result, false, nil
		}
		if wants, ok := o.changes[name]; ok {
			intents = append(intents, wants)
		}
	}
	result, err = merge.Apply(o.pod, intents, schema.ClusterDefaults{})
	if isPodError(err) {
		return result, false, nil
	}
	return result, err == nil, err
}

// isPodError reports whether the pod, and no policy, is the cause of an error.
func isPodError(err error) bool {
	var malformed *merge.InvalidObjectError
	return errors.As(err, &malformed)
}

// applied returns the pod that the named policies changed, and the changes.
func (o *podEvaluation) applied(names ...string) (pod, patch string, err error) {
	result, ok, err := o.apply(names...)
	if !ok || err != nil {
		return deniedOutcome, "", err
	}
	raw, err := result.Patch()
	return encodePod(result.Object), string(raw), err
}

// reevaluate evaluates the pod that the named policies changed at once.
func (c *policyTester) reevaluate(ctx context.Context, before *podEvaluation, names ...string) (*podEvaluation, error) {
	silent := func(name string) bool {
		_, wants := before.changes[name]
		return !wants && len(before.denials[name]) == 0
	}
	if !slices.ContainsFunc(names, func(name string) bool { return !silent(name) }) {
		return before, nil
	}
	outcome, _, err := before.applied(names...)
	if err != nil {
		return nil, err
	}
	if outcome == deniedOutcome {
		return &podEvaluation{pod: before.pod, rejection: fmt.Sprint(names, ": ", before.rejection, before.denials)}, nil
	}
	return c.evaluateJSON(ctx, outcome)
}

// evaluateJSON evaluates an outcome.
func (c *policyTester) evaluateJSON(ctx context.Context, outcome string) (*podEvaluation, error) {
	pod, err := decodePod(outcome)
	if err != nil {
		return nil, err
	}
	return c.evaluate(ctx, c.set, pod)
}

// encodePod returns a pod as JSON, with sorted keys.
func encodePod(pod map[string]any) string {
	raw, err := json.Marshal(pod)
	if err != nil {
		return err.Error() // which is no JSON, and found out when it is read
	}
	return string(raw)
}

// decodePod decodes a pod from JSON.
func decodePod(pod string) (object map[string]any, err error) {
	err = utiljson.Unmarshal([]byte(pod), &object)
	return object, err
}

// corpusProjects are the projects of the corpus by their names in its pods, with the pools of
// `sluice up`. Another project, which no pod of the corpus names, has three pools of Kueue: two
// equal ones, and one with slices.
func corpusProjects(b policySets) map[string]*policyTester {
	pools := map[string]input.NodePool{"dgx": testPool("dgx", v1alpha1.SharingNone, wholeGPUPool.Products...), "dgx-mig": testPool("dgx-mig", v1alpha1.SharingMIG, slices.Clone(migPool.Products)...)}
	for name, p := range pools {
		p.NodeSelector = map[string]string{v1alpha1.LabelNodePool: name}
		p.Tolerations = []corev1.Toleration{{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}
		p.Guaranteed, p.Limit = 2000, 4000
		if name == "dgx-mig" {
			p.Guaranteed, p.Limit = 1000, 2000
			// All profiles of its GPU models, also those without an instance.
			p.Products[0].Profiles = append(slices.Clone(p.Products[0].Profiles), migProfile("1g.10gb", 10, 250), migProfile("4g.20gb", 20, 500))
		}
		pools[name] = p
	}
	for name, like := range map[string]string{"dgx-a": "dgx", "dgx-b": "dgx", "dgx-c": "dgx-mig"} {
		p := pools[like]
		p.Name, p.NodeSelector = name, map[string]string{v1alpha1.LabelNodePool: name}
		p.Scheduler, p.QuotaResource, p.GuaranteedResource = v1alpha1.SchedulerKueue, v1alpha1.ResourceGPUMilli, v1alpha1.GuaranteedMilli(v1alpha1.ResourceGPUMilliFor(name))
		pools[name] = p
	}
	courts := map[string]*policyTester{}
	for word, names := range map[string][]string{"whole": {"dgx"}, "slices": {"dgx-mig"}, "both": {"dgx-mig", "dgx"}, "queued": {"dgx-a", "dgx-b", "dgx-c"}} {
		c := &policyTester{policySets: b, project: testProject}
		c.project.Name, c.project.Namespace, c.project.Department = "corpus-"+word, "corpus-"+word, "corpus"
		c.project.Limits = map[v1alpha1.WorkloadType]input.Limits{}
		for _, t := range []v1alpha1.WorkloadType{v1alpha1.WorkloadTrain, v1alpha1.WorkloadInteractive, v1alpha1.WorkloadInference} {
			c.project.Limits[t] = input.Limits{MaxRuntime: "48h", MaxRuntimeSeconds: 48 * 3600}
		}
		for _, name := range names {
			c.pools = append(c.pools, pools[name])
		}
		courts[word] = c
	}
	return courts
}

// corpusPod is a pod of the corpus, and the result of a real API server.
type corpusPod struct {
	name, project string
	pod           corev1.Pod
	golden        struct {
		Refused string      `json:"refused"`
		Pod     *corev1.Pod `json:"pod"`
	}
}

func corpusPods(tb testing.TB) []corpusPod {
	tb.Helper()
	const corpus = "../test/testdata/pods"
	paths, err := filepath.Glob(corpus + "/*.yaml")
	if err != nil || len(paths) < 40 {
		tb.Fatalf("%d pods of the corpus (%v), want 40 or more", len(paths), err)
	}
	var all []corpusPod
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			tb.Fatal(err)
		}
		s := corpusPod{name: strings.TrimSuffix(filepath.Base(path), ".yaml")}
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

// toUnstructured returns a pod as the API server sends it.
func toUnstructured(tb testing.TB, pod *corev1.Pod) map[string]any {
	tb.Helper()
	raw, err := json.Marshal(pod)
	if err != nil {
		tb.Fatal(err)
	}
	object, err := decodePod(string(raw))
	if err != nil {
		tb.Fatal(err)
	}
	return object
}
