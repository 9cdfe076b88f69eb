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

var creators = flag.Int("creators", 8, "how many clients create pods concurrently in BenchmarkPodsPerSecond")

const (
	// benchmarkRounds is the number of rounds of each namespace in one operation, and
	// podsPerRound the number of pods in a round. Rounds are short, so that other load on
	// the machine affects all namespaces alike.
	benchmarkRounds = 8
	podsPerRound    = 64
	// The namespaces of the benchmark. Pods in governedSpeed pass Sluice's webhooks and
	// quotas, pods in outsideSpeed do not. Pods in countedSpeed pass no webhook, but a
	// ResourceQuota counts their devices, which costs the API server another write for each
	// pod. Pods in noopWebhookSpeed are also counted, and pass two webhooks that decode and
	// allow them: no webhook can be faster.
	governedSpeed    = "speed"
	outsideSpeed     = "speed-outside"
	countedSpeed     = "speed-counted"
	noopWebhookSpeed = "speed-noop-webhook"
	// otherResource is what pods outside projects request instead of GPUs, which they cannot
	// have.
	otherResource = "example.com/gpu"
)

// BenchmarkPodsPerSecond measures how many pods per second clients create through the API
// server, in the namespace of a project and outside projects, in alternating rounds. One
// operation contains all rounds of all namespaces. The pods have a scheduling gate, so the
// work of the scheduler and the kubelets is not measured.
//
// The clients have no rate limit, and the API server does not throttle administrators. All
// figures in the output come from one run:
//
//	pods/s-*           pods created per second, median of the rounds
//	%-of-outside       speed of governed in percent of outside; %-of-counted and
//	                   %-of-noop likewise
//	cpu-ms-*           CPU time for one pod, of all components together and of Sluice's webhook;
//	                   the webhooks of noop run in this process and are not counted
//	ms-mutating, ...   time that the API server waited for the webhook, from its metrics
//	retries            pods that the webhook timed out on at the first attempt
func BenchmarkPodsPerSecond(b *testing.B) {
	sharedCluster.createDepartment(b, governedSpeed, newPoolQuota("dgx", "0", "20000"))
	sharedCluster.createGovernedProject(b, governedSpeed, governedSpeed, newPoolQuota("dgx", "0", "10000"))
	sharedCluster.allowGate(b, "example.org/never")
	for _, name := range []string{outsideSpeed, countedSpeed, noopWebhookSpeed} {
		create(b, newNamespace(name))
		eventually(b, func() error {
			_, err := sharedCluster.clientset.CoreV1().ServiceAccounts(name).Get(b.Context(), "default", metav1.GetOptions{})
			return err
		})
	}
	for _, name := range []string{countedSpeed, noopWebhookSpeed} {
		create(b, &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Name: "gpus", Namespace: name},
			Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"requests." + otherResource: resource.MustParse("10000")}},
		})
	}
	installAllowingWebhooks(b, noopWebhookSpeed)
	config := rest.CopyConfig(sharedCluster.config)
	config.WarningHandler = rest.NoWarnings{}
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		b.Fatal(err)
	}
	for _, kind := range []string{"CPU", "GPU"} {
		for _, alike := range []bool{true, false} {
			namespaces := []string{governedSpeed, outsideSpeed, noopWebhookSpeed}
			if kind == "GPU" {
				namespaces = append(namespaces, countedSpeed)
			}
			name := kind + map[bool]string{true: "/OneController", false: "/AllDifferent"}[alike]
			b.Run(name, func(b *testing.B) {
				r := &throughputComparison{clientset: clientset, gpus: kind == "GPU", alike: alike}
				r.run(b, namespaces)
			})
		}
	}
}

// throughputComparison compares the throughput of the namespaces for one kind of pod.
type throughputComparison struct {
	clientset   kubernetes.Interface
	gpus, alike bool
	created     atomic.Int64 // the number of the last pod
	retries     atomic.Int64 // pods that were not created at the first attempt
}

func (r *throughputComparison) run(b *testing.B, namespaces []string) {
	durations := map[string][]float64{} // seconds, by namespace and round
	cpu := map[string]cpuSeconds{}
	for _, ns := range namespaces {
		r.runRound(b, ns) // the first round warms up and is not measured
	}
	before := webhookLatencies(b)
	r.retries.Store(0)
	for b.Loop() {
		for round := range benchmarkRounds {
			for i := range namespaces {
				ns := namespaces[(i+round)%len(namespaces)]
				seconds, used := r.runRound(b, ns)
				durations[ns] = append(durations[ns], seconds)
				cpu[ns] = cpu[ns].add(used, 1)
			}
		}
	}
	after := webhookLatencies(b)
	b.ReportMetric(0, "ns/op") // the sum over all namespaces has no meaning
	for _, ns := range namespaces {
		name := map[string]string{governedSpeed: "governed", outsideSpeed: "outside", countedSpeed: "counted", noopWebhookSpeed: "noop"}[ns]
		b.ReportMetric(podsPerRound/median(durations[ns]), "pods/s-"+name)
		b.ReportMetric(cpu[ns].millisPerPod(len(durations[ns])), "cpu-ms-"+name)
		if ns == governedSpeed {
			continue
		}
		var ratios []float64
		for round, duration := range durations[ns] {
			ratios = append(ratios, 100*duration/durations[governedSpeed][round])
		}
		b.ReportMetric(median(ratios), "%-of-"+name)
	}
	b.ReportMetric(cpuSeconds{"webhook": cpu[governedSpeed]["webhook"]}.millisPerPod(len(durations[governedSpeed])), "cpu-ms-webhook")
	b.ReportMetric(float64(r.retries.Load()), "retries")
	for kind, stats := range after {
		b.ReportMetric(1000*(stats.seconds-before[kind].seconds)/(stats.count-before[kind].count), "ms-"+kind)
	}
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// cpuSeconds is the CPU time of each component in seconds.
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

// millisPerPod returns the CPU time for one pod in milliseconds, over so many rounds.
func (w cpuSeconds) millisPerPod(rounds int) float64 {
	sum := 0.0
	for _, seconds := range w {
		sum += seconds
	}
	return 1000 * sum / float64(rounds*podsPerRound)
}

// componentCPU returns the CPU time of the components until now.
func (s *sluiceCluster) componentCPU(tb testing.TB) cpuSeconds {
	tb.Helper()
	report, err := s.readReport(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	total := cpuSeconds{}
	for _, c := range report.Components {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.PID))
		if err != nil {
			tb.Fatal(err)
		}
		// The name of the program in brackets precedes the state and numbers, of which the
		// twelfth and thirteenth count hundredths of seconds in user and system mode.
		fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
		for _, field := range fields[11:13] {
			ticks, err := strconv.ParseFloat(field, 64)
			if err != nil {
				tb.Fatal(err)
			}
			total[c.Name] += ticks / 100
		}
	}
	return total
}

// runRound creates pods in a namespace and deletes them again. It returns how many seconds
// the creation took and the CPU time of the components during it.
func (r *throughputComparison) runRound(b *testing.B, ns string) (float64, cpuSeconds) {
	b.Helper()
	before := sharedCluster.componentCPU(b)
	var (
		all       errgroup.Group
		remaining atomic.Int64
	)
	remaining.Store(podsPerRound)
	start := policytime.MachineNow()
	for range *creators {
		all.Go(func() error {
			for remaining.Add(-1) >= 0 {
				if err := r.createWithRetry(b.Context(), ns); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := all.Wait()
	seconds := policytime.MachineNow().Sub(start).Seconds()
	if err != nil {
		b.Fatal(err)
	}
	used := sharedCluster.componentCPU(b).add(before, -1)
	b.StopTimer()
	defer b.StartTimer()
	err = r.clientset.CoreV1().Pods(ns).DeleteCollection(b.Context(), metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}, metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	eventually(b, func() error { return r.checkCleanedUp(b.Context(), ns) })
	return seconds, used
}

// createWithRetry creates a pod, and retries if the webhook timed out, as controllers do.
func (r *throughputComparison) createWithRetry(ctx context.Context, ns string) error {
	pod := r.benchmarkPod(ns)
	for {
		_, err := r.clientset.CoreV1().Pods(ns).Create(ctx, pod, metav1.CreateOptions{})
		if err == nil || ctx.Err() != nil || !isWebhookTimeout(err) && !strings.Contains(err.Error(), "exceeded the evaluation time limit") {
			return err
		}
		r.retries.Add(1)
	}
}

// checkCleanedUp returns an error while the namespace has pods, or a quota counts them or their requests. The quotas of
// a project also count objects that stay, such as the ConfigMap that Kubernetes creates in every namespace.
func (r *throughputComparison) checkCleanedUp(ctx context.Context, ns string) error {
	pods, err := r.clientset.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	if len(pods.Items) > 0 {
		return unexpectedState("no pod exists", pods.Items[0].Name)
	}
	quotas, err := r.clientset.CoreV1().ResourceQuotas(ns).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range quotas.Items {
		for name, used := range quotas.Items[i].Status.Used {
			ofPods := name == corev1.ResourcePods || strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix)
			if ofPods && !used.IsZero() {
				return unexpectedState("no quota counts pods", fmt.Sprint(name, ": ", used.String()))
			}
		}
	}
	return nil
}

// benchmarkPod returns a typical pod of about four kilobytes with two containers. The pods
// of one controller are identical; otherwise each pod differs in the fields that users
// write.
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
			name = otherResource
		}
		p.Spec.Containers[0].Resources.Limits[name] = resource.MustParse("1")
	}
	return p
}

// callStats is the time that the API server waited for a webhook, and the number of calls.
type callStats struct{ seconds, count float64 }

// webhookLatencies returns the metrics of the API server about Sluice's webhooks for pods.
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
