// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
)

var creators = flag.Int("creators", 8, "how many make pods at once in BenchmarkPodsPerSecond")

const (
	// benchmarkRounds are how often each namespace has its turn in one operation, and atATime
	// how many pods are made in one turn: turns are short, so that what else the
	// machine does hits all alike.
	benchmarkRounds = 8
	podsPerRound    = 64
	// The namespaces of the benchmark. The pods of governed pass Sluice's webhooks and
	// its quotas, those of outside do not. Those of counted pass no webhook either,
	// but their devices are counted by a ResourceQuota, which is Kubernetes' own and
	// makes the API server write once more for each pod. Those of asked are counted
	// too, and pass two webhooks that decode the pod and allow it: with webhooks,
	// nobody is faster.
	governedSpeed = "speed"
	outsideSpeed  = "speed-outside"
	countedSpeed  = "speed-counted"
	askedSpeed    = "speed-asked"
	// otherWebhook is what pods outside of projects ask for in the place of GPUs, which
	// they may not have there.
	otherWebhook = "example.com/gpu"
)

// BenchmarkPodsPerSecond measures how many pods are made in a second through the
// real API server, in the namespace of a project and outside of projects, in turns.
// One operation is all turns of all. Its pods have a scheduling gate: what the
// scheduler and kubelets would do with them is not measured.
//
// The clients have no limit of their own, and the API server does not hold back
// its administrators. All figures in its output are of one run:
//
//	pods/s-*           pods made in a second, in a turn that is neither fast nor slow
//	%-of-outside       how fast governed is, in percent of outside; %-of-counted and
//	                   %-of-asked likewise
//	cpu-ms-*           for one pod, by all components together, and by Sluice's webhook;
//	                   what asked's webhook takes is this process's, and not counted
//	ms-mutating, ...   how long the API server waited for the webhook, by its own metrics
//	tried-again        pods for which the webhook had no time at the first try
func BenchmarkPodsPerSecond(b *testing.B) {
	sharedCluster.createDepartment(b, governedSpeed, newPoolQuota("dgx", "0", "20000"))
	sharedCluster.createGovernedProject(b, governedSpeed, governedSpeed, newPoolQuota("dgx", "0", "10000"))
	for _, name := range []string{outsideSpeed, countedSpeed, askedSpeed} {
		create(b, newNamespace(name))
		eventually(b, func() error {
			_, err := sharedCluster.clientset.CoreV1().ServiceAccounts(name).Get(b.Context(), "default", metav1.GetOptions{})
			return err
		})
	}
	for _, name := range []string{countedSpeed, askedSpeed} {
		create(b, &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Name: "gpus", Namespace: name},
			Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"requests." + otherWebhook: resource.MustParse("10000")}},
		})
	}
	installAllowingWebhooks(b, askedSpeed)
	config := rest.CopyConfig(sharedCluster.config)
	config.WarningHandler = rest.NoWarnings{}
	native, err := kubernetes.NewForConfig(config)
	if err != nil {
		b.Fatal(err)
	}
	for _, kind := range []string{"CPU", "GPU"} {
		for _, alike := range []bool{true, false} {
			namespaces := []string{governedSpeed, outsideSpeed, askedSpeed}
			if kind == "GPU" {
				namespaces = append(namespaces, countedSpeed)
			}
			name := kind + map[bool]string{true: "/OneController", false: "/AllDifferent"}[alike]
			b.Run(name, func(b *testing.B) {
				r := &throughputComparison{native: native, gpus: kind == "GPU", alike: alike}
				r.run(b, namespaces)
			})
		}
	}
}

// throughputComparison is one comparison.
type throughputComparison struct {
	native      kubernetes.Interface
	gpus, alike bool
	created     atomic.Int64 // pods, of which no two have the same number
	retries     atomic.Int64 // pods that were not made at the first try
}

func (r *throughputComparison) run(b *testing.B, namespaces []string) {
	took := map[string][]float64{} // seconds, by namespace and turn
	worked := map[string]cpuSeconds{}
	for _, ns := range namespaces {
		r.runRound(b, ns) // what is made for the first time is not measured
	}
	before := webhookLatencies(b)
	r.retries.Store(0)
	for b.Loop() {
		for round := range benchmarkRounds {
			for i := range namespaces {
				ns := namespaces[(i+round)%len(namespaces)]
				seconds, did := r.runRound(b, ns)
				took[ns] = append(took[ns], seconds)
				worked[ns] = worked[ns].add(did, 1)
			}
		}
	}
	after := webhookLatencies(b)
	b.ReportMetric(0, "ns/op") // of all namespaces together, which says nothing
	for _, ns := range namespaces {
		name := map[string]string{governedSpeed: "governed", outsideSpeed: "outside", countedSpeed: "counted", askedSpeed: "asked"}[ns]
		b.ReportMetric(podsPerRound/median(took[ns]), "pods/s-"+name)
		b.ReportMetric(worked[ns].millisPerPod(len(took[ns])), "cpu-ms-"+name)
		if ns == governedSpeed {
			continue
		}
		var ratios []float64
		for turn, off := range took[ns] {
			ratios = append(ratios, 100*off/took[governedSpeed][turn])
		}
		b.ReportMetric(median(ratios), "%-of-"+name)
	}
	b.ReportMetric(cpuSeconds{"webhook": worked[governedSpeed]["webhook"]}.millisPerPod(len(took[governedSpeed])), "cpu-ms-webhook")
	b.ReportMetric(float64(r.retries.Load()), "tried-again")
	for kind, spent := range after {
		b.ReportMetric(1000*(spent.seconds-before[kind].seconds)/(spent.count-before[kind].count), "ms-"+kind)
	}
}

func median(of []float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// cpuSeconds is how long the processors were busy with each component, in seconds.
type cpuSeconds map[string]float64

func (w cpuSeconds) add(other cpuSeconds, sign float64) cpuSeconds {
	sum := maps.Clone(w)
	if sum == nil {
		sum = cpuSeconds{}
	}
	for name, seconds := range other {
		sum[name] += sign * seconds
	}
	return sum
}

// millisPerPod is the work for one pod in so many turns, in milliseconds.
func (w cpuSeconds) millisPerPod(turns int) float64 {
	sum := 0.0
	for _, seconds := range w {
		sum += seconds
	}
	return 1000 * sum / float64(turns*podsPerRound)
}

// componentCPU is what the components have done until now.
func componentCPU(tb testing.TB) cpuSeconds {
	tb.Helper()
	report, err := sharedCluster.readReport(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	done := cpuSeconds{}
	for _, c := range report.Components {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.PID))
		if err != nil {
			tb.Fatal(err)
		}
		// What follows the program's name in brackets: the state, and then numbers, of
		// which the twelfth and thirteenth count hundredths of seconds in user and in
		// system mode.
		fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
		for _, field := range fields[11:13] {
			ticks, err := strconv.ParseFloat(field, 64)
			if err != nil {
				tb.Fatal(err)
			}
			done[c.Name] += ticks / 100
		}
	}
	return done
}

// runRound makes pods in a namespace, and takes them away again. It returns how many
// seconds it took to make them, and what the components did meanwhile.
func (r *throughputComparison) runRound(b *testing.B, ns string) (float64, cpuSeconds) {
	b.Helper()
	before := componentCPU(b)
	var (
		all  errgroup.Group
		left atomic.Int64
	)
	left.Store(podsPerRound)
	start := policytime.MachineNow()
	for range *creators {
		all.Go(func() error {
			for left.Add(-1) >= 0 {
				if err := r.createWithRetry(b.Context(), ns); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := all.Wait()
	took := policytime.MachineNow().Sub(start).Seconds()
	if err != nil {
		b.Fatal(err)
	}
	did := componentCPU(b).add(before, -1)
	b.StopTimer()
	defer b.StartTimer()
	err = r.native.CoreV1().Pods(ns).DeleteCollection(b.Context(), metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}, metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	eventually(b, func() error { return r.checkCleanedUp(b.Context(), ns) })
	return took, did
}

// createWithRetry makes a pod, and again where the webhook ran out of time, as controllers
// do.
func (r *throughputComparison) createWithRetry(ctx context.Context, ns string) error {
	pod := r.benchmarkPod(ns)
	for {
		_, err := r.native.CoreV1().Pods(ns).Create(ctx, pod, metav1.CreateOptions{})
		if err == nil || ctx.Err() != nil || !isWebhookTimeout(err) && !strings.Contains(err.Error(), "time was over") {
			return err
		}
		r.retries.Add(1)
	}
}

// checkCleanedUp tells whether no pod is left, nor counted.
func (r *throughputComparison) checkCleanedUp(ctx context.Context, ns string) error {
	pods, err := r.native.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	if len(pods.Items) > 0 {
		return unexpectedState("no pod is left", pods.Items[0].Name)
	}
	quotas, err := r.native.CoreV1().ResourceQuotas(ns).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range quotas.Items {
		for name, used := range quotas.Items[i].Status.Used {
			if !used.IsZero() {
				return unexpectedState("nothing is counted", fmt.Sprint(name, ": ", used.String()))
			}
		}
	}
	return nil
}

// benchmarkPod is as people write it: about four kilobytes, with two containers. Of one
// controller all are the same; else each differs in what its author wrote.
func (r *throughputComparison) benchmarkPod(ns string) *corev1.Pod {
	number := r.created.Add(1)
	if r.alike {
		number = 0
	}
	container := func(name string) corev1.Container {
		c := corev1.Container{
			Name: name, Image: fmt.Sprintf("registry.example.org/team/%s:v%d", name, number),
			Command:   []string{"python", "-m", "train", fmt.Sprintf("--seed=%d", number)},
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1Gi")}},
		}
		for i := range 12 {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", i), Value: fmt.Sprintf("value-%d-%d", number, i)})
		}
		return c
	}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: "train-", Namespace: ns,
			Labels: map[string]string{"app": "train", "run": strconv.FormatInt(number, 10)},
		},
		Spec: corev1.PodSpec{
			Containers:      []corev1.Container{container("main"), container("sidecar")},
			RestartPolicy:   corev1.RestartPolicyNever,
			SchedulingGates: []corev1.PodSchedulingGate{{Name: "example.org/never"}},
		},
	}
	if r.gpus {
		name := v1alpha1.ResourceNVIDIAGPU
		if ns != governedSpeed {
			name = otherWebhook
		}
		p.Spec.Containers[0].Resources.Limits[name] = resource.MustParse("1")
	}
	return p
}

// callStats is how long the API server waited for a webhook, and how often.
type callStats struct{ seconds, count float64 }

// webhookLatencies are what the API server itself measured of Sluice's webhooks for
// pods, as of now.
func webhookLatencies(tb testing.TB) map[string]callStats {
	tb.Helper()
	raw, err := sharedCluster.clientset.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	const metric = "apiserver_admission_webhook_admission_duration_seconds_"
	times := map[string]callStats{}
	for line := range strings.Lines(string(raw)) {
		if !strings.HasPrefix(line, metric) || !strings.Contains(line, `name="pods.sluice.dev"`) || !strings.Contains(line, `operation="CREATE"`) {
			continue
		}
		kind := "validating"
		if strings.Contains(line, `type="admit"`) {
			kind = "mutating"
		}
		fields := strings.Fields(line)
		value, err := strconv.ParseFloat(fields[len(fields)-1], 64)
		if err != nil {
			tb.Fatalf("%s: %v", line, err)
		}
		sum := times[kind]
		switch {
		case strings.HasPrefix(line, metric+"sum"):
			sum.seconds += value
		case strings.HasPrefix(line, metric+"count"):
			sum.count += value
		}
		times[kind] = sum
	}
	return times
}
