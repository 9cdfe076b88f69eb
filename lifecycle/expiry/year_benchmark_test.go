// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/notification"
)

var yearProjects = flag.Int("year-projects", 10_000, "how many projects BenchmarkYear has")

// BenchmarkYear lets policy time pass for a year, day by day, for 10,000 projects whose year of validity ends within it.
// Half of them expire, are suspended and await the approval of their deletion, and half are confirmed a week after their owner
// is asked. Every project is reconciled each day, as
// after each step of policy time, and again when one of its Notices was sent.
//
// The API server, the cache and the outbox are indexed objects in memory: the figures have neither the encoding of objects
// nor a network. One operation is a whole year: run it with -benchtime 1x.
//
//	B-heap/project      live heap of the cache after the first pass; B-heap-end/project with a year's Notices and renewals
//	writes-at-rest      writes of a second pass over all projects
//	µs/pass-at-rest     time of a pass that changes nothing
//	s/year, passes/year time and passes of the year
//	writes/project      in the year; notices/project, renewals/project of them
func BenchmarkYear(b *testing.B) {
	b.ReportMetric(0, "ns/op")
	for b.Loop() {
		heapBefore := liveHeap()
		y := newYear(b, *yearProjects)
		y.reconcileAll()
		perProject := func(n int) float64 { return float64(n) / float64(*yearProjects) }
		b.ReportMetric(perProject(liveHeap()-heapBefore), "B-heap/project")

		y.writes, y.passes = 0, 0
		began := policytime.MachineNow()
		y.reconcileAll()
		b.ReportMetric(policytime.MachineNow().Sub(began).Seconds()*1e6/float64(y.passes), "µs/pass-at-rest")
		b.ReportMetric(float64(y.writes), "writes-at-rest")
		if y.writes != 0 {
			b.Errorf("%d writes at rest, want none", y.writes)
		}

		y.passes = 0
		began = policytime.MachineNow()
		for range 365 {
			y.passDay()
		}
		b.ReportMetric(policytime.MachineNow().Sub(began).Seconds(), "s/year")
		b.ReportMetric(float64(y.passes), "passes/year")
		b.ReportMetric(perProject(y.writes), "writes/project")
		b.ReportMetric(perProject(len(y.objects["Notice"].ListKeys())), "notices/project")
		b.ReportMetric(perProject(y.renewals), "renewals/project")
		b.ReportMetric(perProject(liveHeap()-heapBefore), "B-heap-end/project")
		y.requireAllDecided()
	}
}

// unsentNotices is an index of the Notices that the outbox reads.
const unsentNotices = "unsent"

func liveHeap() int {
	debug.FreeOSMemory()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}

// year is a cache of many projects, with lifecycle, the outbox and owners.
type year struct {
	b          *testing.B
	clock      *policyClock
	reconciler *Reconciler
	names      []string
	// objects are those of the cache, by kind.
	objects                  map[string]cache.Indexer
	writes, passes, renewals int
	// changed are the projects whose Notices were sent since their last pass.
	changed []string
}

func newYear(b *testing.B, projects int) *year {
	b.Helper()
	zone := berlin(b)
	start := time.Date(2026, 3, 2, 8, 0, 0, 0, zone)
	y := &year{b: b, clock: &policyClock{start}, objects: map[string]cache.Indexer{}}
	for _, kind := range []string{"Project", "Department", "Notice", "Extension"} {
		indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
		if kind == "Notice" {
			indexers[noticesByProject] = func(o any) ([]string, error) { return indexNotice(o.(client.Object)), nil }
			indexers[unsentNotices] = func(o any) ([]string, error) {
				if o.(*v1alpha1.Notice).Status.Phase != "" {
					return nil, nil
				}
				return []string{""}, nil
			}
		}
		y.objects[kind] = cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers)
	}
	for name, action := range map[string]v1alpha1.ExpiryAction{"students": v1alpha1.ExpiryExpire, "research": v1alpha1.ExpiryConfirm} {
		department := newStudents("P1Y", action)
		department.Name = name
		y.store(department)
	}
	for i := range projects {
		// All warnings are after the start, and all ends before the end of the year.
		name, created := fmt.Sprintf("thesis-%05d", i), start.AddDate(-1, 0, 32+i*320/projects)
		p := newThesis(created, fmt.Sprintf("anna-%d", i%2000))
		p.Name, p.UID, p.Status.Namespace.Name = name, types.UID("uid-of-"+name), name
		if i%2 == 1 {
			p.Spec.Department = "research"
		}
		y.store(p)
		y.names = append(y.names, name)
	}
	c := y.client()
	y.reconciler = &Reconciler{
		Client: c, Live: c, Events: discardedEvents{}, Clock: y.clock, Notices: notification.Recorder{Client: c, Live: c},
		MailPaused: func(context.Context) (bool, error) { return false, nil },
	}
	return y
}

type discardedEvents struct{}

func (discardedEvents) Eventf(k8sruntime.Object, k8sruntime.Object, string, string, string, string, ...any) {
}

// reconcileAll reconciles all projects, as after a step of policy time, and then those whose Notices were sent.
func (y *year) reconcileAll() {
	ctx := log.IntoContext(y.b.Context(), logr.Discard())
	for due := y.names; len(due) > 0; {
		for _, name := range due {
			y.passes++
			if _, err := y.reconciler.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKey{Name: name}}); err != nil {
				y.b.Fatalf("at %s: %v", y.clock.now, err)
			}
		}
		y.deliver()
		due, y.changed = y.changed, nil
	}
}

// passDay lets a day pass until the digest at eight.
func (y *year) passDay() {
	y.clock.now = y.clock.now.AddDate(0, 0, 1)
	y.confirm()
	y.reconcileAll()
}

// deliver sends the Notices that are due.
func (y *year) deliver() {
	unsent, err := y.objects["Notice"].ByIndex(unsentNotices, "")
	if err != nil {
		y.b.Fatal(err)
	}
	for _, o := range unsent {
		n := o.(*v1alpha1.Notice).DeepCopy()
		if n.Spec.DueAt.After(y.clock.now) {
			continue
		}
		n.Status.Phase, n.Status.SentAt = v1alpha1.NoticeSent, &metav1.Time{Time: y.clock.now}
		y.store(n)
		if n.Spec.Lead != nil {
			y.changed = append(y.changed, n.Spec.Subject.Name)
		}
	}
}

// confirm renews the research projects whose owners were asked a week ago.
func (y *year) confirm() {
	for _, o := range y.objects["Project"].List() {
		p := o.(*v1alpha1.Project)
		isAsked := p.Spec.Department == "research" && p.Status.Phase == v1alpha1.ProjectExpiring
		if !isAsked || p.Status.PhaseSince.AddDate(0, 0, 7).After(y.clock.now) {
			continue
		}
		e := newRenewal(fmt.Sprintf("renewal-%d", p.Status.Periods), y.clock.now)
		e.Namespace, e.UID, e.Spec.Target.Name = p.Name, types.UID(p.Name+e.Name), p.Name
		e.Status.Decision, e.Status.DecidedAt = v1alpha1.ExtensionApproved, &metav1.Time{Time: y.clock.now}
		y.renewals++
		y.store(e)
	}
}

// requireAllDecided fails if a project has not come to its end, or was not renewed.
func (y *year) requireAllDecided() {
	y.b.Helper()
	for _, o := range y.objects["Project"].List() {
		p := o.(*v1alpha1.Project)
		isRenewed := p.Status.Phase == v1alpha1.ProjectActive && p.Status.Periods >= 2
		if p.Spec.Department == "research" != isRenewed || !isRenewed && !p.IsClosed() {
			y.b.Fatalf("project %s of %s, created %s: %+v", p.Name, p.Spec.Department, p.CreationTimestamp, p.Status)
		}
	}
}
