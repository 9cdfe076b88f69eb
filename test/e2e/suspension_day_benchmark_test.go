// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"sluice.dev/api/period"
	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/test/clustertest"
)

const (
	// dayName is the name of the department, the node pool and the node of BenchmarkSuspensionDay.
	dayName = "day"
	// dayTimeout bounds each part of BenchmarkSuspensionDay.
	dayTimeout = 30 * time.Minute
	// suspensionGoal is the time in which the GPUs of a thousand projects are to be free, on two processors.
	suspensionGoal = 10 * time.Minute
	// dayClients is the number of requests at a time that prepare the benchmark.
	dayClients = 8
)

// BenchmarkSuspensionDay measures what happens when a thousand projects (-projects) are suspended at the same time, as at
// the end of a semester, on a real API server. Each has a running Job with one GPU and a CronJob. Policy time is advanced
// through the expiry and all warnings, which are sent, to the suspension. One operation is all of it: run it with
// -benchtime 1x. Times are from the step of policy time. It fails if a Notice or a mail exists twice or a GPU is free too
// late.
//
//	s-suspended    until the last project has the phase
//	s-jobs         until the last Job is suspended, s-cronjobs the same
//	s-gpus-free    until the last pod is gone; -p50 half of them. The simulated pods end at once
//	s-mailed       until the last owner's mail about it was sent
//	writes/project    requests of lifecycle that write, until its controllers have nothing left to do
//	requests/project  all its requests
//	notices/project   from the first warning to the suspension
//	cpu-s-*        processor time until all of that
//	s-webhook      time that the API server waited for Sluice's webhooks
func BenchmarkSuspensionDay(b *testing.B) {
	b.ReportMetric(0, "ns/op") // most of it is the preparation
	for b.Loop() {
		d := newSuspensionDay(b)
		validity, after, lead := period.MustParsePeriod("P1M"), 2*24*time.Hour, 24*time.Hour
		start := period.DateOf(d.clockFile.Now(), time.UTC)
		end := validity.ExpiryOf(start.Start(time.UTC), 1, time.UTC)
		d.createProjects(b, start, v1alpha1.ProjectTerms{Validity: &validity, SuspendAfter: ptr.To(period.MustParseDuration("2d"))})
		d.step(b, end.Add(-lead-time.Hour), v1alpha1.NoticeProjectExpiring)
		d.step(b, end, v1alpha1.NoticeProjectExpired)
		d.step(b, end.Add(after-lead-time.Hour), v1alpha1.NoticeProjectSuspending)
		d.measure(b, end.Add(after))
	}
}

// createProjects creates the projects and their workloads, and waits until their pods run.
func (d *suspensionDay) createProjects(b *testing.B, start period.Date, terms v1alpha1.ProjectTerms) {
	b.Helper()
	department := departmentNamed(dayName)
	department.Spec = v1alpha1.DepartmentSpec{
		NodePools:        []v1alpha1.PoolQuota{newPoolQuota(dayName, "0", strconv.Itoa(d.n))},
		Oversubscription: v1alpha1.OversubscriptionAllow,
		Projects:         terms,
		Notices:          v1alpha1.NoticeTerms{ProjectExpiry: []period.Duration{period.MustParseDuration("1d")}},
	}
	d.createForTest(b, department)
	var all errgroup.Group
	all.SetLimit(dayClients)
	for i := range d.n {
		all.Go(func() error { return d.createProject(b.Context(), fmt.Sprintf("%s-%04d", dayName, i), start) })
	}
	if err := all.Wait(); err != nil {
		b.Fatal(err)
	}
	clustertest.EventuallyWithin(b, dayTimeout, func() error { return d.check("running", d.n) })
	b.Logf("%d projects run", d.n)
}

// createProject creates a project, and its workloads as its owner.
func (d *suspensionDay) createProject(ctx context.Context, name string, start period.Date) error {
	user := name + "-user@example.org"
	p := newProject(name, func(p *v1alpha1.Project) {
		p.Spec.Department, p.Spec.NodePools, p.Spec.ValidFrom = dayName, []v1alpha1.PoolQuota{newPoolQuota(dayName, "0", "1")}, &start
		address := v1alpha1.EmailAddress(name + "@example.org")
		p.Spec.Owners = []v1alpha1.Owner{{User: user, Contact: v1alpha1.Contact{Name: "Owner", Email: address}}}
		p.Spec.Members = []v1alpha1.Member{{Kind: v1alpha1.MemberUser, Name: user, Role: v1alpha1.RoleEditor}}
	})
	if err := d.adminClient.Create(ctx, p); err != nil {
		return err
	}
	owner, err := kubernetes.NewForConfig(d.stack.AsUser(user))
	if err != nil {
		return err
	}
	job := newGPUJob(name, "train", withGPU)
	nightly := &batchv1.CronJob{ObjectMeta: workloadMeta(name, "nightly"), Spec: batchv1.CronJobSpec{
		Schedule: "0 0 1 1 *", JobTemplate: batchv1.JobTemplateSpec{Spec: newGPUJob(name, "nightly", withGPU).Spec},
	}}
	// The namespace and the rights in it come after the project.
	var last error
	create := func(f func() error) error {
		err := wait.PollUntilContextTimeout(ctx, 250*time.Millisecond, timeStepTimeout, true, func(context.Context) (bool, error) {
			last = f()
			return last == nil, nil
		})
		if err != nil {
			return fmt.Errorf("create a workload of %s: %w", name, last)
		}
		return nil
	}
	if err := create(func() error {
		_, err := owner.BatchV1().Jobs(name).Create(ctx, job, metav1.CreateOptions{})
		return err
	}); err != nil {
		return err
	}
	return create(func() error {
		_, err := owner.BatchV1().CronJobs(name).Create(ctx, nightly, metav1.CreateOptions{})
		return err
	})
}

// step advances policy time and waits until each owner was sent the mail of a kind.
func (d *suspensionDay) step(b *testing.B, at time.Time, kind v1alpha1.NoticeKind) {
	b.Helper()
	begin := policytime.MachineNow()
	if err := d.clockFile.AdvanceTo(at); err != nil {
		b.Fatal(err)
	}
	clustertest.EventuallyWithin(b, dayTimeout, func() error { return d.check(sentOf(kind), d.n) })
	d.waitUntilIdle(b)
	b.Logf("%s: %s sent to %d owners in %s", at, kind, d.n, policytime.MachineNow().Sub(begin).Round(time.Second))
}

// measure advances policy time to the suspension.
func (d *suspensionDay) measure(b *testing.B, at time.Time) {
	b.Helper()
	lifecycleBefore, serverBefore, cpuBefore := d.lifecycleMetrics(b), d.serverMetrics(b), d.componentCPU(b)
	d.begin()
	if err := d.clockFile.AdvanceTo(at); err != nil {
		b.Fatal(err)
	}
	suspended := sentOf(v1alpha1.NoticeProjectSuspended)
	clustertest.EventuallyWithin(b, dayTimeout, func() error {
		for _, what := range []string{"suspended", "jobs", "cronjobs", "gpus-free", suspended} {
			if err := d.check(what, d.n); err != nil {
				return err
			}
		}
		return nil
	})
	b.Logf("suspended in %s", policytime.MachineNow().Sub(d.since).Round(time.Second))
	d.waitUntilIdle(b)
	cpu := d.componentCPU(b).add(cpuBefore, -1)
	lifecycle, server := difference(d.lifecycleMetrics(b), lifecycleBefore), difference(d.serverMetrics(b), serverBefore)

	for _, what := range []string{"suspended", "jobs", "cronjobs", "gpus-free"} {
		b.ReportMetric(quantileSeconds(d.times(what), 1), "s-"+what)
	}
	b.ReportMetric(quantileSeconds(d.times("gpus-free"), 0.5), "s-gpus-free-p50")
	b.ReportMetric(quantileSeconds(d.times(suspended), 1), "s-mailed")
	writes, requests := 0.0, 0.0
	for name, n := range lifecycle {
		if strings.HasPrefix(name, "rest_client_requests_total{") {
			requests += n
			if !strings.Contains(name, `method="GET"`) {
				writes += n
			}
		}
	}
	b.ReportMetric(writes/float64(d.n), "writes/project")
	b.ReportMetric(requests/float64(d.n), "requests/project")
	for _, name := range []string{"lifecycle", "webhook", "kube-apiserver", "etcd"} {
		b.ReportMetric(cpu[name], "cpu-s-"+name)
	}
	waited := 0.0
	for name, seconds := range server {
		if strings.HasPrefix(name, "apiserver_admission_webhook_admission_duration_seconds_sum{") {
			waited += seconds
		}
	}
	b.ReportMetric(waited, "s-webhook")
	b.Log("writes to the API server by all components: ", describeWrites(server))
	d.checkNotices(b)
	if most := quantileSeconds(d.times("gpus-free"), 1); most > suspensionGoal.Seconds() {
		b.Errorf("the last GPU was free after %.0f s, want at most %s", most, suspensionGoal)
	}
}

// checkNotices fails the benchmark if an owner does not have each Notice and each mail exactly once.
func (d *suspensionDay) checkNotices(b *testing.B) {
	b.Helper()
	counts := d.noticeCounts()
	b.ReportMetric(float64(sum(maps.Values(counts)))/float64(d.n), "notices/project")
	mails := map[string]int{}
	for _, m := range d.listMails(b) {
		if strings.HasPrefix(m.To, dayName+"-") {
			mails[m.To+": "+m.Subject]++
		}
	}
	const kinds = 4
	for what, counts := range map[string]map[string]int{"Notice": counts, "mail": mails} {
		if len(counts) != kinds*d.n {
			b.Errorf("%d kinds of %s to %d owners, want %d", len(counts), what, d.n, kinds*d.n)
		}
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			if counts[name] != 1 {
				b.Errorf("%s %s exists %d times, want once", what, name, counts[name])
			}
		}
	}
}
