// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionpolicy_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"sluice.dev/api"
	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/rendering/admissionpolicy"
	"sluice.dev/test/clustertest"
)

// A pause is announced when it begins and when it ends by itself, each once: as a condition, as an event and as a metric.
// The user of the request is recorded, and no other can be.
func TestPauseIsAnnounced(t *testing.T) {
	defer removeAdmissionPolicies(t) // other tests label namespaces before they start the reconciler
	defer startReconciler(t)()
	clock := &steppedClock{now: time.Now().UTC().Truncate(time.Second)}
	recorder := startPauseReconciler(t, clock)
	admin := clustertest.Admin(t)
	// Its first event applies the policies.
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.SystemNamespace}}
	if err := client.IgnoreAlreadyExists(admin.Create(t.Context(), system)); err != nil {
		t.Fatal(err)
	}
	review := &authenticationv1.SelfSubjectReview{}
	if err := admin.Create(t.Context(), review); err != nil {
		t.Fatal(err)
	}
	parameters := &v1alpha1.AdmissionParameters{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.AdmissionParametersName}}
	const pauseTime = time.Hour
	write := func(by string, options ...client.SubResourcePatchOption) error {
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(parameters), parameters); err != nil {
			return err
		}
		before := parameters.DeepCopy()
		now := clock.Now()
		parameters.Status.Pause = &v1alpha1.Pause{Since: metav1.NewTime(now), Until: metav1.NewTime(now.Add(pauseTime)), By: by, Reason: "a test"}
		return admin.Status().Patch(t.Context(), parameters, client.MergeFrom(before), options...)
	}
	clustertest.Eventually(t, func() error {
		if err := write("another", client.DryRunAll); err == nil || !strings.Contains(err.Error(), "status.pause.by must be") {
			return fmt.Errorf("a pause in another name: %w", err)
		}
		return nil
	})
	if err := write(review.Status.UserInfo.Username); err != nil {
		t.Fatal(err)
	}
	for _, want := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse} {
		clustertest.Eventually(t, func() error {
			if err := admin.Get(t.Context(), client.ObjectKeyFromObject(parameters), parameters); err != nil {
				return err
			}
			c := meta.FindStatusCondition(parameters.Status.Conditions, v1alpha1.ConditionPaused)
			if c == nil || c.Status != want || !strings.Contains(c.Message, review.Status.UserInfo.Username) {
				return fmt.Errorf("the condition is %+v, want %s", c, want)
			}
			if got, inForce := gauge(t, "sluice_paused"), want == metav1.ConditionTrue; (got == 1) != inForce {
				return fmt.Errorf("sluice_paused is %v", got)
			}
			return nil
		})
		clock.step(pauseTime) // after the first round, the pause ends without a write
	}
	for _, want := range []string{"Warning PauseRequested", "Normal PauseEnded"} {
		select {
		case got := <-recorder.Events:
			if !strings.HasPrefix(got, want) {
				t.Errorf("event %q, want %s", got, want)
			}
		case <-t.Context().Done():
		}
	}
	if len(recorder.Events) > 0 {
		t.Errorf("one more event: %s", <-recorder.Events)
	}
}

// steppedClock is a policy time that only steps. The controller waits briefly for any time to come, so that it observes a step.
type steppedClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *steppedClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *steppedClock) step(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(by)
}

func (*steppedClock) FromReal(t time.Time) time.Time    { return t.UTC() }
func (*steppedClock) RealUntil(time.Time) time.Duration { return 50 * time.Millisecond }

// gauge returns the value of a metric without labels.
func gauge(t *testing.T, name string) float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

func startPauseReconciler(t *testing.T, clock policytime.Clock) *events.FakeRecorder {
	t.Helper()
	kinds, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	mgr, err := ctrl.NewManager(clustertest.Start(t).Config(), ctrl.Options{
		Scheme: kinds, Logger: logr.Discard(), Controller: config.Controller{SkipNameValidation: ptr.To(true)},
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
	})
	if err != nil {
		t.Fatal(err)
	}
	recorder := events.NewFakeRecorder(10)
	if err := (&admissionpolicy.PauseReconciler{Client: mgr.GetClient(), Events: recorder, Clock: clock}).SetupWithManager(mgr); err != nil {
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
	return recorder
}

// removeAdmissionPolicies removes the policies that a reconciler bound, and waits until the API server lets an administrator
// label a namespace again.
func removeAdmissionPolicies(t *testing.T) {
	t.Helper()
	cluster, admin := clustertest.Start(t), clustertest.Admin(t)
	for _, object := range []client.Object{&admissionv1.ValidatingAdmissionPolicyBinding{}, &admissionv1.ValidatingAdmissionPolicy{}} {
		if err := admin.DeleteAllOf(t.Context(), object); err != nil {
			t.Error(err)
		}
	}
	labeled := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: clustertest.Namespace(t, cluster)}}
	label := fmt.Appendf(nil, `{"metadata":{"labels":{"%s":"lab"}}}`, v1alpha1.LabelProject)
	clustertest.Eventually(t, func() error {
		return admin.Patch(t.Context(), labeled, client.RawPatch("application/merge-patch+json", label), client.DryRunAll)
	})
}
