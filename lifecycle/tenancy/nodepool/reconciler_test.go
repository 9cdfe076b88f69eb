// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoac "k8s.io/client-go/applyconfigurations"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/v1alpha1/applyconfiguration"
	"sluice.dev/policies"
	"sluice.dev/policies/engine"
)

// testLimits is for slow machines, which are no policy's fault.
var testLimits = engine.Limits{Evaluation: time.Minute, Request: time.Minute}

// requiringPolicy is a policy that requires a setting of pools whose scheduler is kueue, and reads
// another.
const requiringPolicy = `package it

setting(key) := {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "kueue-system", "name": "config", "path": ["data", "it", key]}

requires contains {"setting": setting("fairSharing"), "is": true, "fix": "turn it on"} if {
	input.object.kind == "NodePool"
	input.nodePool.scheduler == "kueue"
	object.get(input.object, "status", {}) == {}
}

requires contains {"setting": setting("queueLabel"), "as": "queueLabelKey", "default": "queue"} if {
	input.nodePool.scheduler == "kueue"
	input.nodePool.unsupported == ""
	input.nodePool.subscribed == 5
}
`

// fixture is a pool with one node of eight GPUs, and what was written of it.
type fixture struct {
	*Reconciler
	client client.Client
	writes int
	// readErr is what reading a ConfigMap gives, if anything.
	readErr error
}

func newFixture(t *testing.T, sources []engine.Source, objects ...client.Object) *fixture {
	t.Helper()
	kinds, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	p, n := newPool("dgx", "dgx"), newNode("one", "8", "dgx")
	p.Spec.Scheduler = v1alpha1.SchedulerKueue
	department := &v1alpha1.Department{
		ObjectMeta: metav1.ObjectMeta{Name: "students"},
		Spec:       v1alpha1.DepartmentSpec{NodePools: []v1alpha1.PoolQuota{{Name: "dgx"}}},
	}
	department.Spec.NodePools[0].GPU.Guaranteed.Set(5)
	g := &fixture{}
	// The API server's kinds: the fake mapper treats unknown kinds as cluster-scoped.
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	g.client = fake.NewClientBuilder().WithScheme(kinds).WithRESTMapper(mapper).
		WithObjects(append(objects, &p, &n, department)...).WithStatusSubresource(&p).
		WithTypeConverters(applyconfiguration.NewTypeConverter(kinds), clientgoac.NewTypeConverter(clientgoscheme.Scheme)).
		WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
				if g.readErr != nil && key.Namespace == "kueue-system" {
					return g.readErr
				}
				return c.Get(ctx, key, into, opts...)
			},
			SubResourceApply: func(ctx context.Context, c client.Client, sub string, o runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
				g.writes++
				return c.SubResource(sub).Apply(ctx, o, opts...)
			},
		}).Build()
	e, err := engine.New(engine.Options{Limits: testLimits})
	if err != nil {
		t.Fatal(err)
	}
	for _, report := range e.Update(sources) {
		for _, problem := range report.Problems {
			t.Fatal(problem)
		}
	}
	g.Reconciler = &Reconciler{Client: g.client, Live: g.client, Policies: e}
	return g
}

// reconcile reconciles the pool with a new checker.
func (g *fixture) reconcile(t *testing.T) (reconcile.Result, v1alpha1.NodePoolStatus, error) {
	t.Helper()
	g.checker = nil
	result, err := g.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "dgx"}})
	var pool v1alpha1.NodePool
	if err := g.client.Get(t.Context(), types.NamespacedName{Name: "dgx"}, &pool); err != nil {
		t.Fatal(err)
	}
	return result, pool.Status, err
}

func newConfigMap(text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kueue-system", Name: "config"},
		Data:       map[string]string{"it": text},
	}
}

func formatCondition(status v1alpha1.NodePoolStatus, condition string) string {
	c := meta.FindStatusCondition(status.Conditions, condition)
	if c == nil {
		return "nothing"
	}
	return strings.TrimSpace(strings.Join([]string{string(c.Status), c.Reason, c.Message}, " "))
}

func TestRequirementsAreCheckedPeriodically(t *testing.T) {
	g := newFixture(t, []engine.Source{{Name: "schedulers.kueue", Rego: requiringPolicy}})
	expect := func(what, want string, settings map[string]string, after time.Duration, writes int) {
		t.Helper()
		for range 2 { // the second time nothing is written
			result, status, err := g.reconcile(t)
			if err != nil {
				t.Fatal(err)
			}
			if got := formatCondition(status, v1alpha1.ConditionRequirementsMet); got != want {
				t.Errorf("%s\n got %s\nwant %s", what, got, want)
			}
			if diff := cmp.Diff(settings, status.Settings); diff != "" {
				t.Errorf("%s: settings (-want +got):\n%s", what, diff)
			}
			if result.RequeueAfter != after || g.writes != writes {
				t.Errorf("%s: again after %v, want %v; %d writes, want %d", what, result.RequeueAfter, after, g.writes, writes)
			}
		}
	}
	expect("without its configuration", "False RequirementsMissing ConfigMap kueue-system/config does not exist: turn it on (policy schedulers.kueue)",
		map[string]string{"queueLabelKey": "queue"}, missingRequirementRequeue, 1)
	config := newConfigMap("fairSharing: false")
	if err := g.client.Create(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	expect("with it off", "False RequirementsMissing data.it.fairSharing of ConfigMap kueue-system/config is false and must be true: turn it on (policy schedulers.kueue)",
		map[string]string{"queueLabelKey": "queue"}, missingRequirementRequeue, 2)
	config.Data["it"] = "fairSharing: true\nqueueLabel: team"
	if err := g.client.Update(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	const met = "True GPUsKnown the GPUs of every node are known, and kueue meets its requirements"
	expect("with it on", met, map[string]string{"queueLabelKey": "team"}, requirementsRequeue, 3)

	// While the API server does not answer, what was known stays.
	g.readErr = errors.New("connection refused")
	if _, status, err := g.reconcile(t); err == nil || formatCondition(status, v1alpha1.ConditionRequirementsMet) != met || status.Settings["queueLabelKey"] != "team" || g.writes != 3 {
		t.Errorf("of a server that does not answer: %v, %s, %v, %d writes", err, formatCondition(status, v1alpha1.ConditionRequirementsMet), status.Settings, g.writes)
	}
	g.readErr = nil
	// Other policies are in force: nothing is required any more.
	g.Policies.Update([]engine.Source{{Name: "schedulers.kueue", Rego: "package it\nobjects contains {} if false\n"}})
	expect("without requirements", "True GPUsKnown the GPUs of every node are known", nil, 0, 4)
}

func TestCheckerIsReusedWithinTTL(t *testing.T) {
	g := newFixture(t, nil)
	first := g.currentChecker()
	if g.currentChecker() != first {
		t.Error("the cluster is looked at again at once")
	}
	g.checkerCreated = g.checkerCreated.Add(-checkerTTL - time.Second)
	if g.currentChecker() == first {
		t.Error("an expired checker was used")
	}
}

func TestSupportedSchedulersFollowPoliciesInForce(t *testing.T) {
	const nothing = "package it\nobjects contains {} if false\n"
	missing := "True SchedulerMissing no policy schedulers.kueue is in force, so that nothing is written for spec.scheduler kueue; the policies in force support "
	for name, tt := range map[string]struct {
		policies []engine.Source
		want     string
	}{
		"its own":           {[]engine.Source{{Name: "schedulers.kueue", Rego: nothing, BuiltIn: true}}, "False Supported"},
		"one in its place":  {[]engine.Source{{Name: "ours", Rego: nothing, Replaces: "schedulers.kueue"}}, "False Supported"},
		"one that is tried": {[]engine.Source{{Name: "schedulers.kueue", Rego: nothing, Enforcement: v1alpha1.EnforcementDryRun}}, missing + "no scheduler"},
		"those of others":   {[]engine.Source{{Name: "schedulers.kai", Rego: nothing}, {Name: "core.gpu", Rego: nothing}, {Name: "schedulers.a", Rego: nothing}}, missing + "a, kai"},
		"none":              {nil, missing + "no scheduler"},
	} {
		_, status, err := newFixture(t, tt.policies).reconcile(t)
		if got := formatCondition(status, v1alpha1.ConditionUnsupported); err != nil || got != tt.want {
			t.Errorf("%s: %v\n got %s\nwant %s", name, err, got, tt.want)
		}
	}
}

func TestFailingPolicyIsReported(t *testing.T) {
	g := newFixture(t, []engine.Source{
		{Name: "schedulers.kueue", Rego: "package it\nrequires contains {\"crd\": \"a.b\"}\n"},
		{Name: "tried", Rego: "package it\nrequires contains 7\n", Enforcement: v1alpha1.EnforcementDryRun},
	})
	result, status, err := g.reconcile(t)
	const want = "Unknown PolicyFailed policy schedulers.kueue could not be evaluated for its requirements: "
	if got := formatCondition(status, v1alpha1.ConditionRequirementsMet); err != nil || !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "has no fix") {
		t.Errorf("%v\n got %s\nwant %s… has no fix", err, got, want)
	}
	if result.RequeueAfter != missingRequirementRequeue {
		t.Errorf("again after %v, want %v", result.RequeueAfter, missingRequirementRequeue)
	}
}

// The built-in policies report the requirements of their schedulers, and fail none themselves.
func TestBuiltInPoliciesSupportTheirSchedulers(t *testing.T) {
	e, err := engine.New(engine.Options{Libraries: policies.Libraries(), Limits: testLimits})
	if err != nil {
		t.Fatal(err)
	}
	e.Update(policies.BuiltIn())
	for scheduler, requires := range map[v1alpha1.Scheduler]bool{
		v1alpha1.SchedulerKube: false, v1alpha1.SchedulerKueue: true, v1alpha1.SchedulerKAI: true, v1alpha1.SchedulerHAMi: false,
	} {
		g := newFixture(t, nil)
		g.Policies = e
		p := newPool("dgx", "dgx")
		p.Spec.Scheduler, p.Spec.Sharing = scheduler, v1alpha1.SharingKAI
		s, err := g.observeScheduler(t.Context(), &p)
		if err != nil || s.CheckErr != nil || len(s.Failures) > 0 {
			t.Errorf("%s: %v, %v, %v", scheduler, err, s.CheckErr, s.Failures)
		}
		if s.Supported != (scheduler != v1alpha1.SchedulerHAMi) || s.RequirementCount > 0 != requires || len(s.Findings.Missing) > 0 != requires {
			t.Errorf("%s: supported %v, %d required, missing %q", scheduler, s.Supported, s.RequirementCount, s.Findings.Messages())
		}
	}
}

// A GPUNode, which the agent writes often, is a reason to reconcile only the pools of its node.
func TestGPUNodeReconcilesItsPools(t *testing.T) {
	other, node := newPool("other", "other"), newNode("two", "8", "other")
	g := newFixture(t, nil, &other, &node)
	for name, want := range map[string]string{"one": "dgx", "two": "other", "gone": ""} {
		var got []string
		for _, request := range g.mapGPUNodeToPools(t.Context(), &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: name}}) {
			got = append(got, request.Name)
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("GPUNode %s: pools %q, want %q", name, text, want)
		}
	}
}
