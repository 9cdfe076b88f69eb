// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"sluice.dev/api"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/engine/document"
	"sluice.dev/test/clustertest"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	clustertest.Main(m, clustertest.InstallKinds)
}

// createPolicy creates a Policy object and deletes it after the test.
func createPolicy(t *testing.T, c client.Client, object v1alpha1.Policy) *v1alpha1.Policy {
	t.Helper()
	object.Generation = 0
	if err := c.Create(t.Context(), &object); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(c.Delete(context.Background(), &object)); err != nil {
			t.Error(err)
		}
	})
	return &object
}

// startStore runs a store under a manager until the test ends.
func startStore(t *testing.T, store *Store) {
	t.Helper()
	kinds, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	mgr, err := ctrl.NewManager(clustertest.Start(t).Config(), ctrl.Options{
		Scheme: kinds, Logger: logr.Discard(),
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.SetupWithManager(t.Context(), mgr); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func newEngine(t *testing.T) *engine.Engine {
	t.Helper()
	e, err := engine.New(engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// evaluatePod returns the engine's result for a minimal pod.
func evaluatePod(t *testing.T, e *engine.Engine) ([]string, error) {
	t.Helper()
	object, err := document.Decode([]byte(`{"kind": "Pod"}`))
	if err != nil {
		t.Fatal(err)
	}
	set, err := e.Current()
	if err != nil {
		return nil, err
	}
	outcome, err := set.Evaluate(t.Context(), engine.Input{
		Subject: engine.Subject{Operation: v1alpha1.OperationCreate, Kind: "Pod"}, Object: object, Now: metav1.Unix(0, 0).Time,
	})
	var denials []string
	for _, denial := range outcome.Denials {
		denials = append(denials, denial.Policy+": "+denial.Message)
	}
	return denials, err
}

func TestStoreFollowsPolicyObjects(t *testing.T) {
	c := clustertest.Admin(t)
	limits := engine.Source{
		Name: "core.limits", BuiltIn: true, Parameters: []byte(`{"minimumGraceSeconds": 8}`),
		Rego: "package limits\ndeny contains sprintf(\"at most %d\", [input.parameters.minimumGraceSeconds])\n",
	}
	before := createPolicy(t, c, newPolicy("before", "package before\ndeny contains \"before\"\n", ""))
	store := &Store{Engine: newEngine(t), BuiltIn: []engine.Source{limits}}
	if err := store.Ready(nil); !errors.Is(err, errNotLoaded) {
		t.Errorf("ready before the start: %v", err)
	}
	startStore(t, store)

	want := func(denials ...string) {
		t.Helper()
		clustertest.Eventually(t, func() error {
			got, err := evaluatePod(t, store.Engine)
			if diff := cmp.Diff(denials, got); err != nil || diff != "" {
				return fmt.Errorf("%w: (-want +got):\n%s", err, diff)
			}
			return nil
		})
	}
	clustertest.Eventually(t, func() error { return store.Ready(nil) })
	want("before: before", "core.limits: at most 8")

	if err := c.Delete(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	want("core.limits: at most 8")

	mirror := newPolicy("core.limits", "package other\ndeny contains \"other\"\n", `{"minimumGraceSeconds": 2}`)
	impostor := createPolicy(t, c, mirror)
	team := createPolicy(t, c, newPolicy("team", "package team\ndeny contains \"team\"\n", ""))
	want("core.limits: at most 8", "team: team")
	clustertest.Eventually(t, func() error {
		report, _ := store.Report("core.limits")
		if len(report.Warnings) != 1 || !strings.Contains(report.Warnings[0].Message, "is ignored") {
			return fmt.Errorf("the report %+v does not name the impostor", report)
		}
		return nil
	})

	// Its label alone makes it the mirror: its parameters hold, its Rego does not.
	impostor.Labels = map[string]string{v1alpha1.LabelBuiltIn: "true"}
	if err := c.Update(t.Context(), impostor); err != nil {
		t.Fatal(err)
	}
	want("core.limits: at most 2", "team: team")

	// A wrong parameter leaves the last good ones in force.
	impostor.Spec.Parameters.Raw = []byte(`{"minimumGraceSeconds": "soon"}`)
	if err := c.Update(t.Context(), impostor); err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, func() error {
		report, _ := store.Report("core.limits")
		if report.Generation != impostor.Generation || report.EnforcedGeneration != 1 || !report.Active || len(report.Problems) != 1 {
			return fmt.Errorf("report %+v, want a problem with generation %d, and 1 in force", report, impostor.Generation)
		}
		return nil
	})
	want("core.limits: at most 2", "team: team")
	if err := store.Ready(nil); err != nil {
		t.Errorf("a wrong parameter makes it unready: %v", err)
	}

	// What does not compile leaves the last good version in force.
	team.Spec.Rego = "package team\ndeny contains \"broken\" if {\n"
	if err := c.Update(t.Context(), team); err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, func() error {
		report, _ := store.Report("team")
		if report.Generation != 2 || report.EnforcedGeneration != 1 || !report.Active || len(report.Problems) == 0 {
			return fmt.Errorf("report %+v, want problems with generation 2, and 1 in force", report)
		}
		return nil
	})
	want("core.limits: at most 2", "team: team")
	if err := store.Ready(nil); err != nil {
		t.Errorf("a team's broken policy makes it unready: %v", err)
	}
}

func TestStatusChangeCausesNoUpdate(t *testing.T) {
	c := clustertest.Admin(t)
	store := &Store{Engine: newEngine(t)}
	var mu sync.Mutex
	var seen [][]string
	store.OnReports(func(reports []engine.Report) {
		mu.Lock()
		defer mu.Unlock()
		names := []string{}
		for _, report := range reports {
			names = append(names, report.Name)
		}
		seen = append(seen, names)
	})
	first := createPolicy(t, c, newPolicy("first", emptyModule, ""))
	startStore(t, store)
	clustertest.Eventually(t, func() error { return store.Ready(nil) })

	first.Status.Violations = 3
	if err := c.Status().Update(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	createPolicy(t, c, newPolicy("second", emptyModule, ""))
	clustertest.Eventually(t, func() error {
		if _, ok := store.Report("second"); !ok {
			return errors.New("the second policy was not seen")
		}
		return nil
	})
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff([][]string{{"first"}, {"first", "second"}}, seen); diff != "" {
		t.Errorf("reports (-want +got):\n%s", diff)
	}
	var late []engine.Report
	store.OnReports(func(reports []engine.Report) { late = reports })
	if len(late) != 2 {
		t.Errorf("a late listener got %+v at once, want both", late)
	}
}

func TestNotReadyWhileABuiltInPolicyIsInactive(t *testing.T) {
	clustertest.Admin(t)
	store := &Store{Engine: newEngine(t), BuiltIn: []engine.Source{
		{Name: "core.good", BuiltIn: true, Rego: emptyModule},
		{Name: "core.bad", BuiltIn: true, Rego: "package bad\ndeny := 3\n"},
	}}
	startStore(t, store)
	const want = "the built-in policy core.bad is not in force: core.bad:2:1: deny has one value here"
	clustertest.Eventually(t, func() error {
		if err := store.Ready(nil); err == nil || !strings.HasPrefix(err.Error(), want) {
			return fmt.Errorf("ready: %w, want %s", err, want)
		}
		return nil
	})
}

// A replica is ready once every policy was tried, also if one has no good version: that one refuses what
// it matches. A revision that arrives later puts the last good version in force. Guards invariant 4 of
// the design.
func TestReadyWhileAPolicyRefuses(t *testing.T) {
	c := clustertest.Admin(t)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.SystemNamespace}}
	if err := c.Create(t.Context(), namespace); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	broken := createPolicy(t, c, newPolicy("team", "package team\ndeny := 3\n", ""))
	store := &Store{Engine: newEngine(t)}
	startStore(t, store)
	clustertest.Eventually(t, func() error { return store.Ready(nil) })
	if report, _ := store.Report("team"); report.Active || !report.Refusing {
		t.Errorf("report %+v", report)
	}
	if denials, err := evaluatePod(t, store.Engine); err != nil || len(denials) != 1 || !strings.Contains(denials[0], "no version of it is in force") {
		t.Errorf("denials %q, error %v", denials, err)
	}
	good := *broken
	good.Spec.Rego = "package team\ndeny contains \"good\"\n"
	revision, err := NewRevision(&good)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), revision); err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, func() error {
		denials, err := evaluatePod(t, store.Engine)
		if diff := cmp.Diff([]string{"team: good"}, denials); err != nil || diff != "" {
			return fmt.Errorf("%w: (-want +got):\n%s", err, diff)
		}
		return nil
	})
}

func TestAPIServerRejectsListParameters(t *testing.T) {
	c := clustertest.Admin(t)
	broken := newPolicy("core.limits", emptyModule, "")
	broken.Spec.Parameters = &apiextensionsv1.JSON{Raw: []byte(`[1]`)}
	if err := c.Create(t.Context(), &broken); err == nil {
		_ = c.Delete(t.Context(), &broken)
		t.Error("the API server accepts a list")
	}
}
