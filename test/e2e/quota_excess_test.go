// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/timelimit/suspend"
)

var quotaRaceRounds = flag.Int("quota-race-rounds", 2, "how many times TestQuotaRace and BenchmarkQuotaRace repeat the race")

const (
	raceLimit     = 60 // GPUs
	raceDeletions = 50 // pods
	// raceDuration is the time for which creates are repeated while the quota refuses them.
	raceDuration = 5 * time.Second
	// limitInForce is longer than lifecycle waits before it ends pods for a new limit.
	limitInForce = 6 * time.Second
)

// What the API server admits above the limit, because its counter lags, is ended by lifecycle: the
// newest pod, once, with a condition and events. Guards invariant 3 of the design. The test makes the
// counter lag as Kubernetes' quota controller does: it writes a usage without the newest pods.
func TestExcessAfterRecountIsEnded(t *testing.T) {
	t.Parallel()
	const ns = "recount"
	sharedCluster.createDepartment(t, "recounters", newPoolQuota("dgx", "0", "2"))
	sharedCluster.createGovernedProject(t, "recounters", ns, newPoolQuota("dgx", "0", "2"))
	pods := sharedCluster.clientset.CoreV1().Pods(ns)
	for i := range 2 {
		if _, err := pods.Create(t.Context(), newTrainingPod(ns, i), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, steadily(limitInForce, func() error { return sharedCluster.checkQuotaUsed(t.Context(), ns, 2000) }))
	sharedCluster.recountQuota(t, ns, "1")
	newest, err := pods.Create(t.Context(), newTrainingPod(ns, 2), metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("the race was not reproduced: %v", err)
	}
	eventually(t, func() error {
		if _, err := pods.Get(t.Context(), newest.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the newest pod was not ended: %w", err)
		}
		return nil
	})
	p := newProject(ns)
	var message string
	eventually(t, func() error {
		if err := sharedCluster.adminClient.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionLimitExceeded)
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonWithinLimit {
			return fmt.Errorf("condition %+v", c)
		}
		message = c.Message
		return nil
	})
	want := "project recount held 3 GPUs of node pool dgx, 1 GPU more than its limit of 2 GPUs, because the quota's counter lagged behind; " +
		"ended the newest: pod recount/" + newest.Name
	if !strings.Contains(message, want) {
		t.Errorf("the condition says %q, want %q", message, want)
	}
	eventually(t, func() error {
		list, err := sharedCluster.clientset.EventsV1().Events("").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=LimitExceeded"})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if list.Items[i].Regarding.UID == newest.UID {
				return nil
			}
		}
		return fmt.Errorf("no event about pod %s among %d", newest.Name, len(list.Items))
	})
	if left := sharedCluster.listPods(t, ns); len(left) != 2 {
		t.Errorf("%d pods are left, want the two older ones", len(left))
	}
}

// A limit that is lowered ends no running work. Guards invariants 3 and 11 of the design.
func TestLoweredLimitEndsNothing(t *testing.T) {
	t.Parallel()
	const ns = "lowered"
	sharedCluster.createDepartment(t, "lowerers", newPoolQuota("dgx", "0", "2"))
	sharedCluster.createGovernedProject(t, "lowerers", ns, newPoolQuota("dgx", "0", "2"))
	for i := range 2 {
		if _, err := sharedCluster.clientset.CoreV1().Pods(ns).Create(t.Context(), newTrainingPod(ns, i), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	p := newProject(ns)
	lower := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"nodePools":[{"name":"dgx","gpu":{"guaranteed":"0","limit":"1"}}]}}`))
	if err := sharedCluster.adminClient.Patch(t.Context(), p, lower); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if err := refresh(t, p); err != nil {
			return err
		}
		return checkCondition(p.Status.Conditions, v1alpha1.ConditionLimitExceeded, metav1.ConditionTrue, v1alpha1.ReasonLimitLowered)
	})
	eventually(t, steadily(limitInForce, func() error {
		if left := sharedCluster.listPods(t, ns); len(left) != 2 {
			return fmt.Errorf("%d pods are left of 2", len(left))
		}
		return nil
	}))
}

// recountQuota writes a smaller usage into the project's quota, as the quota controller does when
// it counts without the newest pods.
func (s *sluiceCluster) recountQuota(t *testing.T, ns, gpus string) {
	t.Helper()
	used := resource.MustParse(gpus)
	controller := s.impersonate(t, "system:serviceaccount:kube-system:resourcequota-controller", nil).CoreV1().ResourceQuotas(ns)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		quota, err := s.clientset.CoreV1().ResourceQuotas(ns).Get(t.Context(), v1alpha1.QuotaName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for name := range quota.Status.Used {
			if strings.Contains(string(name), string(v1alpha1.ResourceGPUMilli)) {
				quota.Status.Used[name] = *resource.NewQuantity(used.MilliValue(), resource.DecimalSI)
			}
		}
		_, err = controller.UpdateStatus(t.Context(), quota, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// With three webhook replicas, 200 creates and 50 deletions at once exceed a limit of 60 GPUs only for
// as long as lifecycle needs to end the newest. Guards invariant 3 of the design.
func TestQuotaRace(t *testing.T) {
	s := newUnsharedCluster(t)
	r := newQuotaRace(t, s)
	for round := range *quotaRaceRounds {
		t.Logf("round %d: %s", round, r.run(t))
	}
	t.Log(r)
	if slowest := r.quantile(r.detected, 1); slowest > time.Minute {
		t.Errorf("an excess was detected after %s, want about a second, and at most a minute on a busy machine", slowest)
	}
}

// BenchmarkQuotaRace measures how pods that come and go at the limit exceed it, while the cluster's pods
// change fast (quotaRace.runWaves). One operation is -quota-race-rounds rounds: run it with -benchtime 1x.
//
//	excesses            times that the pods held more than the limit
//	gpus-max            the largest excess
//	s-detected-p50, -p99  from the excess to the first pod that lifecycle ends
//	s-ended-p50, -p99     from the excess until the pods are within the limit
func BenchmarkQuotaRace(b *testing.B) {
	b.ReportMetric(0, "ns/op") // the cluster's start would dominate
	r := newQuotaRace(b, newUnsharedCluster(b))
	r.keepPodsChanging(b)
	for b.Loop() {
		for range *quotaRaceRounds {
			b.Log(r.runWaves(b))
		}
	}
	b.Log(r)
	b.ReportMetric(float64(len(r.sizes)), "excesses")
	b.ReportMetric(float64(slices.Max(append(r.sizes, 0)))/1000, "gpus-max")
	b.ReportMetric(r.quantile(r.detected, 0.5).Seconds(), "s-detected-p50")
	b.ReportMetric(r.quantile(r.detected, 0.99).Seconds(), "s-detected-p99")
	b.ReportMetric(r.quantile(r.ended, 0.5).Seconds(), "s-ended-p50")
	b.ReportMetric(r.quantile(r.ended, 0.99).Seconds(), "s-ended-p99")
}

// quotaRace repeats creates and deletions at the limit of a project, and measures from a watch how
// long and by how much its pods exceed it.
type quotaRace struct {
	cluster *sluiceCluster
	// clientset prints no warnings: each pod has one.
	clientset kubernetes.Interface
	ns        string

	mu    sync.Mutex
	pods  map[types.UID]int64 // thousandths of GPUs of pods that are not being deleted
	since time.Time           // of the present excess; zero without one
	peak  int64
	found bool // a pod was ended for the present excess
	// sizes are the largest sums above the limit in thousandths of GPUs, detected and ended the times
	// from the excess to the first ended pod, and until the pods were within the limit.
	sizes           []int64
	detected, ended []time.Duration
}

func newQuotaRace(t testing.TB, s *sluiceCluster) *quotaRace {
	t.Helper()
	r := &quotaRace{cluster: s, ns: "race", pods: map[types.UID]int64{}}
	s.startWebhookReplicas(t, 3)
	s.createDepartment(t, "racers", newPoolQuota("dgx", "0", "60"))
	s.createGovernedProject(t, "racers", r.ns, newPoolQuota("dgx", "0", "60"))
	config := rest.CopyConfig(s.config)
	config.WarningHandler = rest.NoWarnings{}
	var err error
	if r.clientset, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	watching, err := client.NewWithWatch(s.config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	watcher, err := watching.Watch(t.Context(), &corev1.PodList{}, client.InNamespace(r.ns))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watcher.Stop)
	go func() {
		for event := range watcher.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok {
				r.observe(event.Type, pod, policytime.MachineNow())
			}
		}
	}()
	return r
}

// observe updates the sum of the pods, and records where an excess begins and ends.
func (r *quotaRace) observe(event watch.EventType, pod *corev1.Pod, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pods[pod.UID] = 1000
	if event == watch.Deleted || pod.DeletionTimestamp != nil {
		delete(r.pods, pod.UID)
	}
	excess := int64(len(r.pods))*1000 - raceLimit*1000
	isEnded := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Reason == suspend.ReasonStopped
	})
	switch {
	case excess > 0 && r.since.IsZero():
		r.since, r.peak, r.found = now, excess, false
	case !r.since.IsZero() && isEnded && !r.found:
		r.found = true
		r.detected = append(r.detected, now.Sub(r.since))
	}
	r.peak = max(r.peak, excess)
	if excess <= 0 && !r.since.IsZero() {
		r.sizes, r.ended = append(r.sizes, r.peak), append(r.ended, now.Sub(r.since))
		r.since, r.peak = time.Time{}, 0
	}
}

// recountAfter is the number of checks after which fill makes the quota controller count again. By itself
// it does so every five minutes.
const recountAfter = 20

// fill waits until the project holds its limit and the quota counts that. Lifecycle may end a pod at any
// time, and the quota controller may have counted without the newest.
func (r *quotaRace) fill(t testing.TB) {
	t.Helper()
	ctx, pods := t.Context(), r.clientset.CoreV1().Pods(r.ns)
	wrong := 0
	eventuallyLong(t, steadily(limitInForce, func() error {
		list, err := pods.List(ctx, metav1.ListOptions{})
		for i := len(list.Items); err == nil && i < raceLimit; i++ {
			_, err = pods.Create(ctx, newTrainingPod(r.ns, i), metav1.CreateOptions{})
		}
		isFull := err == nil
		if isFull {
			err = r.cluster.checkQuotaUsed(ctx, r.ns, raceLimit*1000)
		}
		if err == nil {
			wrong = 0
			return nil
		}
		wrong++
		// The quota keeps what it charged for refused pods until a pod ends.
		if len(list.Items) > 0 && (isQuotaExceeded(err) || isFull && wrong%recountAfter == 0) {
			err = errors.Join(err, pods.Delete(ctx, list.Items[0].Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}))
		}
		return err
	}))
}

// run fills the project, then creates and deletes pods at once, and waits until the pods are within
// the limit and the quota's count is right.
func (r *quotaRace) run(t testing.TB) string {
	t.Helper()
	ctx, pods := t.Context(), r.clientset.CoreV1().Pods(r.ns)
	none := metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}
	r.fill(t)
	list, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	start := make(chan struct{})
	for i := range concurrentCreates {
		all.Go(func() {
			<-start
			// Controllers try again while there is no quota.
			for ended := policytime.MachineNow().Add(raceDuration); policytime.MachineNow().Before(ended); {
				_, err := pods.Create(ctx, newTrainingPod(r.ns, i), metav1.CreateOptions{})
				if err == nil {
					return
				}
				if !isQuotaExceeded(err) && !isAdmissionTimeout(err) && !apierrors.IsConflict(err) {
					t.Errorf("neither admitted nor rejected by the quota: %v", err)
				}
			}
		})
	}
	for i := range raceDeletions {
		all.Go(func() {
			<-start
			err := pods.Delete(ctx, list.Items[i].Name, none)
			if client.IgnoreNotFound(err) != nil { // lifecycle may have ended it
				t.Error(err)
			}
		})
	}
	before := len(r.sizes)
	close(start)
	all.Wait()
	eventuallyLong(t, steadily(time.Second, r.checkWithinLimit))
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprintf("%d excesses, %d pods are left of %d", len(r.sizes)-before, len(r.pods), raceLimit)
}

func (r *quotaRace) checkWithinLimit() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.pods) > raceLimit {
		return unexpectedState(fmt.Sprintf("at most %d pods", raceLimit), len(r.pods))
	}
	return nil
}

func (r *quotaRace) quantile(of []time.Duration, quantile float64) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(of) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(of))
	return sorted[min(len(sorted)-1, int(quantile*float64(len(sorted))))]
}

// String describes what was measured.
func (r *quotaRace) String() string {
	return fmt.Sprintf("%d excesses of %v thousandths of GPUs; detected after p50 %s, p99 %s; ended after p50 %s, p99 %s",
		len(r.sizes), r.sizes, r.quantile(r.detected, 0.5), r.quantile(r.detected, 0.99), r.quantile(r.ended, 0.5), r.quantile(r.ended, 0.99))
}
