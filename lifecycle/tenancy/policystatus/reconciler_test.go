// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policystatus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"sluice.dev/api"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/store"
	"sluice.dev/test/clustertest"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	clustertest.Main(m, clustertest.InstallKinds)
}

// testBuiltIn are the policies of these tests.
var testBuiltIn = []engine.Source{
	{
		Name: "core.limits", BuiltIn: true, Rego: "package limits\ndeny contains \"too many\" if input.parameters.minimumGraceSeconds\n",
		Match: v1alpha1.PolicyMatch{Kinds: []string{"Pod"}, Operations: []v1alpha1.PolicyOperation{v1alpha1.OperationCreate}},
	},
	{Name: "schedulers.kai", BuiltIn: true, Rego: "package kai\ndeny contains \"x\"\n", Enforcement: v1alpha1.EnforcementWarn},
}

// testEnv is a controller at work, and an administrator beside it.
type testEnv struct {
	*testing.T
	client.Client
	// stop stops the controller.
	stop func()
}

// startTestEnv runs the controller until the test ends, and then removes all policies.
func startTestEnv(t *testing.T, before ...client.Object) testEnv {
	t.Helper()
	admin := clustertest.Admin(t)
	l := testEnv{T: t, Client: admin}
	t.Cleanup(func() {
		if err := admin.DeleteAllOf(context.Background(), &v1alpha1.Policy{}); err != nil {
			t.Error(err)
		}
	})
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.SystemNamespace}}
	if err := admin.Create(t.Context(), namespace); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	for _, object := range before {
		if err := admin.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	l.stop = l.start()
	return l
}

// start runs the controller until the returned function is called, or the test ends.
func (l testEnv) start() (stop func()) {
	l.Helper()
	t := l.T
	kinds, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	often := true
	revision, ofPolicies := store.RevisionCacheOptions()
	cached := map[client.Object]cache.ByObject{revision: ofPolicies}
	mgr, err := ctrl.NewManager(clustertest.Start(t).Config(), ctrl.Options{
		Scheme: kinds, Logger: logr.Discard(), Controller: config.Controller{SkipNameValidation: &often},
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0", Cache: cache.Options{ByObject: cached},
	})
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	policyStore := &store.Store{Engine: e, BuiltIn: testBuiltIn}
	if err := errors.Join(
		policyStore.SetupWithManager(t.Context(), mgr),
		(&Reconciler{
			Client: mgr.GetClient(), BuiltIn: testBuiltIn, Reports: policyStore, Policies: e, Events: mgr.GetEventRecorder("test"),
		}).SetupWithManager(mgr),
	); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// getPolicy is a Policy object as it is now.
func (l testEnv) getPolicy(name string) (*v1alpha1.Policy, error) {
	var object v1alpha1.Policy
	return &object, l.Get(l.Context(), types.NamespacedName{Name: name}, &object)
}

// waitForMirror waits until a Policy object shows a built-in policy, and its status reports
// that it is enforced.
func (l testEnv) waitForMirror(source engine.Source) *v1alpha1.Policy {
	l.Helper()
	var object *v1alpha1.Policy
	clustertest.Eventually(l, func() (err error) {
		if object, err = l.getPolicy(source.Name); err != nil {
			return err
		}
		shown := object.Spec
		shown.Parameters = nil
		if diff := cmp.Diff(mirrorSpec(source), shown); diff != "" {
			return fmt.Errorf("spec of %s (-want +got):\n%s", source.Name, diff)
		}
		for key, value := range mirrorLabels() {
			if object.Labels[key] != value {
				return fmt.Errorf("%s has no label %s=%s", source.Name, key, value)
			}
		}
		if object.Status.ObservedGeneration != object.Generation || object.Status.EnforcedGeneration != object.Generation {
			return fmt.Errorf("%s is of generation %d, status %+v", source.Name, object.Generation, object.Status)
		}
		return checkCompiledCondition(object, metav1.ConditionTrue, v1alpha1.ReasonCompiled, "compiled and in force")
	})
	return object
}

func checkCompiledCondition(object *v1alpha1.Policy, status metav1.ConditionStatus, reason, message string) error {
	condition := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionCompiled)
	if condition == nil || condition.Status != status || condition.Reason != reason || condition.ObservedGeneration != object.Generation ||
		!strings.HasPrefix(condition.Message, message) {
		return fmt.Errorf("%s has %+v, want %s, %s, %s", object.Name, condition, status, reason, message)
	}
	return nil
}

func (l testEnv) mergePatch(object client.Object, change string) {
	l.Helper()
	if err := l.Patch(l.Context(), object, client.RawPatch(types.MergePatchType, []byte(change)), client.FieldOwner("team")); err != nil {
		l.Fatal(err)
	}
}

func newTeamPolicy(name, rego string, labels map[string]string) *v1alpha1.Policy {
	return &v1alpha1.Policy{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: v1alpha1.PolicySpec{Rego: rego}}
}

func TestBuiltInPoliciesAreMirrored(t *testing.T) {
	l := startTestEnv(t)
	for _, source := range testBuiltIn {
		l.waitForMirror(source)
	}
	limits, kai := testBuiltIn[0], testBuiltIn[1]

	t.Run("parameters are the team's", func(t *testing.T) {
		object, err := l.getPolicy(limits.Name)
		if err != nil {
			t.Fatal(err)
		}
		l.mergePatch(object, `{"spec": {"parameters": {"minimumGraceSeconds": 3}, "rego": "package other"}}`)
		object = l.waitForMirror(limits)
		if object.Spec.Parameters == nil || string(object.Spec.Parameters.Raw) != `{"minimumGraceSeconds":3}` {
			t.Errorf("parameters %s, want the team's", object.Spec.Parameters)
		}
		for _, entry := range object.ManagedFields {
			if owns := strings.Contains(entry.FieldsV1.GetRawString(), "f:parameters"); owns && entry.Manager == v1alpha1.FieldManagerLifecycle {
				t.Errorf("lifecycle owns the parameters: %s", entry.FieldsV1.GetRawString())
			}
		}
	})
	for change, patch := range map[string]string{
		"labels":          `{"metadata": {"labels": {"sluice.dev/built-in": "false", "app.kubernetes.io/managed-by": null}}}`,
		"the enforcement": `{"spec": {"enforcement": "DryRun"}}`,
		"the match":       `{"spec": {"match": {"kinds": ["Job", "Pod"], "departments": ["other"], "operations": null}}}`,
		"replaces":        `{"spec": {"replaces": "core.gpu"}}`,
		"all of it":       `{"metadata": {"labels": null}, "spec": {"rego": "package x", "replaces": "core.gpu", "enforcement": "Warn", "match": {"projects": ["a"]}}}`,
	} {
		t.Run(change+" comes back", func(t *testing.T) {
			object, err := l.getPolicy(limits.Name)
			if err != nil {
				t.Fatal(err)
			}
			l.mergePatch(object, patch)
			l.waitForMirror(limits)
		})
	}
	t.Run("what was deleted comes back", func(t *testing.T) {
		object, err := l.getPolicy(kai.Name)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		before := object.UID
		clustertest.Eventually(t, func() error {
			if object, err = l.getPolicy(kai.Name); err == nil && object.UID == before {
				return errors.New("it is still there")
			}
			return err
		})
		l.waitForMirror(kai)
	})
}

func TestReadyFollowsEnforcedVersion(t *testing.T) {
	l := startTestEnv(t)
	limits := testBuiltIn[0]
	object := l.waitForMirror(limits)
	ready := func(status metav1.ConditionStatus, reason, message string) {
		t.Helper()
		clustertest.Eventually(t, func() error {
			object, err := l.getPolicy(limits.Name)
			if err != nil {
				return err
			}
			condition := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionReady)
			if condition == nil || condition.Status != status || condition.Reason != reason || !strings.HasPrefix(condition.Message, message) {
				return fmt.Errorf("%s is %+v, want %s, %s, %s", limits.Name, condition, status, reason, message)
			}
			return nil
		})
	}
	ready(metav1.ConditionTrue, v1alpha1.ReasonReady, "in force")

	mine := newTeamPolicy("mine", "package mine\n", nil)
	mine.Spec.Replaces = limits.Name
	if err := l.Create(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	ready(metav1.ConditionFalse, "Replaced", "policy mine replaces it (spec.replaces)")
	if err := l.Delete(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	ready(metav1.ConditionTrue, v1alpha1.ReasonReady, "in force")

	l.mergePatch(object, `{"spec": {"parameters": {"minimumGraceSeconds": "soon"}}}`)
	ready(metav1.ConditionFalse, "InvalidParameters", `spec.parameters.minimumGraceSeconds: Invalid value: "soon": must be a whole number of seconds`)
	l.mergePatch(object, `{"spec": {"parameters": {"minimumGraceSeconds": 40}}}`)
	ready(metav1.ConditionTrue, v1alpha1.ReasonReady, "in force")
}

func TestOnlyMirrorsOfRemovedPoliciesAreDeleted(t *testing.T) {
	only := map[string]string{v1alpha1.LabelBuiltIn: "true"}
	l := startTestEnv(t,
		newTeamPolicy("core.old", "package old\n", mirrorLabels()),
		newTeamPolicy("core.limits", "package mine\n", nil),
		newTeamPolicy("mine", "package mine\n", only),
		newTeamPolicy("theirs", "package theirs\n", map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBySluice}),
	)
	clustertest.Eventually(t, func() error {
		if _, err := l.getPolicy("core.old"); !apierrors.IsNotFound(err) {
			return fmt.Errorf("core.old: %w, want it deleted", err)
		}
		return nil
	})
	l.waitForMirror(testBuiltIn[0])
	for name, want := range map[string]func(*v1alpha1.Policy) error{
		"mine": func(object *v1alpha1.Policy) error {
			return checkCompiledCondition(object, metav1.ConditionFalse, v1alpha1.ReasonCompileError, "the label sluice.dev/built-in is Sluice's")
		},
		"theirs": func(object *v1alpha1.Policy) error {
			return checkCompiledCondition(object, metav1.ConditionTrue, v1alpha1.ReasonCompiled, "compiled and in force")
		},
	} {
		clustertest.Eventually(t, func() error {
			object, err := l.getPolicy(name)
			if err != nil {
				return err
			}
			return want(object)
		})
	}
}

func TestStatusFollowsTheSource(t *testing.T) {
	l := startTestEnv(t, newTeamPolicy("team", "package team\ndeny contains \"a\"\ndenies contains \"b\"\n", nil))
	steps := []struct {
		name, rego string
		status     metav1.ConditionStatus
		reason     string
		message    string
		errors     []v1alpha1.PolicyError
		enforced   int64
	}{
		{
			name: "it compiles, with a warning", status: metav1.ConditionTrue, reason: v1alpha1.ReasonCompiled, enforced: 1,
			message: "compiled and in force; warnings: 3:1: the rule denies is unused and has no meaning to Sluice; did you mean deny?",
		},
		{
			name: "it does not", rego: "package team\ndeny contains \"a\" if input.nothing\nwarn := 3\n", enforced: 1,
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonCompileError, message: "2:22: input.nothing does not exist",
			errors: []v1alpha1.PolicyError{{Line: 2, Column: 22, Message: "input.nothing"}, {Line: 3, Column: 1, Message: "warn has one value"}},
		},
		{
			name: "it does again", rego: "package team\ndeny contains \"c\"\n", enforced: 3,
			status: metav1.ConditionTrue, reason: v1alpha1.ReasonCompiled, message: "compiled and in force",
		},
	}
	for _, step := range steps {
		t.Run(step.name, func(t *testing.T) {
			object, err := l.getPolicy("team")
			if err != nil {
				t.Fatal(err)
			}
			if step.rego != "" {
				object.Spec.Rego = step.rego
				if err := l.Update(t.Context(), object); err != nil {
					t.Fatal(err)
				}
			}
			clustertest.Eventually(t, func() error {
				if object, err = l.getPolicy("team"); err != nil {
					return err
				}
				if object.Status.ObservedGeneration != object.Generation || object.Status.EnforcedGeneration != step.enforced {
					return fmt.Errorf("generation %d has the status %+v; want %d in force", object.Generation, object.Status, step.enforced)
				}
				return checkCompiledCondition(object, step.status, step.reason, step.message)
			})
			same := func(a, b v1alpha1.PolicyError) bool {
				return a.Line == b.Line && a.Column == b.Column && strings.HasPrefix(a.Message, b.Message)
			}
			if !slices.EqualFunc(object.Status.Errors, step.errors, same) {
				t.Errorf("errors %+v, want %+v", object.Status.Errors, step.errors)
			}
		})
	}
}

func TestMirrorIsAppliedWithoutParameters(t *testing.T) {
	source := testBuiltIn[0]
	source.Parameters = []byte(`{"minimumGraceSeconds": 8}`)
	object, err := newMirror(source)
	if err != nil {
		t.Fatal(err)
	}
	fields, _ := object.Object["spec"].(map[string]any)
	if diff := cmp.Diff([]string{"enforcement", "match", "rego", "type"}, slices.Sorted(maps.Keys(fields))); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
}
