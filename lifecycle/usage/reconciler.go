// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/clock"
	"sluice.dev/lifecycle/gpupods"
)

// Reconciler keeps one UsageRecord for each project and month in which it used
// GPUs. A request's name is a namespace's.
type Reconciler struct {
	// Client reads from the manager's cache: projects, departments and clocks.
	Client client.Client
	// Live reads records from the API server. They are not cached: those of three
	// years are many, and one is looked at when it is written.
	Live client.Reader
	// Workloads knows to which workload a pod belongs.
	Workloads Workloads
	// Clock is policy time.
	Clock clock.Clock

	meter meter
}

// Workloads finds the workloads of pods: a clocks.Grouping.
type Workloads interface {
	// ClockOf is the clock of a pod's workload; false while that is not known.
	ClockOf(pod *gpupods.Pod) (types.NamespacedName, bool)
}

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	result, err := r.account(ctx, req.Name, false)
	if errors.Is(err, errMoved) {
		ctrl.LoggerFrom(ctx).V(1).Info("a usage record has changed; reckoning anew")
		return reconcile.Result{RequeueAfter: time.Millisecond}, nil
	}
	return result, err
}

// account looks at what runs in a namespace, and adds it to the records when that
// is due, or, where it is pressed, whatever has ended.
func (r *Reconciler) account(ctx context.Context, namespace string, pressed bool) (reconcile.Result, error) {
	a, _ := r.meter.look(namespace)
	if a == nil {
		return reconcile.Result{}, nil
	}
	a.turn.Lock()
	defer a.turn.Unlock()
	owner, err := r.ownerOf(ctx, namespace)
	if err != nil {
		return reconcile.Result{}, err
	}
	if a.owner != nil && !a.owner.is(owner) {
		if err := r.handOver(ctx, namespace, a); err != nil {
			return reconcile.Result{}, err
		}
	}
	if a.owner = owner; owner == nil {
		r.meter.forget(a, func(*stretch) bool { return true })
		return r.rest(namespace, a), nil
	}
	l, err := r.reckon(ctx, namespace, a, pressed)
	if err != nil {
		return reconcile.Result{}, err
	}
	due := l.due()
	switch {
	case due == 0, pressed && l.ended():
		if err := r.add(ctx, l); err != nil {
			return reconcile.Result{}, err
		}
		due = writeSpacing
	case l.idle():
		return r.rest(namespace, a), nil
	}
	return reconcile.Result{RequeueAfter: due}, nil
}

// rest lets a namespace be where nothing runs: it is forgotten a while later.
func (r *Reconciler) rest(namespace string, a *account) reconcile.Result {
	if clock.MachineNow().Sub(a.wrote) > longestSleep && r.meter.close(namespace) {
		return reconcile.Result{}
	}
	return reconcile.Result{RequeueAfter: longestSleep}
}

// handOver ends, for the project that had a namespace, what runs there.
func (r *Reconciler) handOver(ctx context.Context, namespace string, a *account) error {
	r.meter.mu.Lock()
	a.release(clock.MachineNow())
	r.meter.mu.Unlock()
	l, err := r.reckon(ctx, namespace, a, true)
	if err == nil {
		err = r.add(ctx, l)
	}
	if err != nil {
		return err
	}
	a.close()
	return nil
}
