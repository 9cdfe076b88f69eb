// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"io/fs"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/config"
	"sluice.dev/lifecycle/expiry"
	"sluice.dev/lifecycle/migplan/gpunode"
	"sluice.dev/lifecycle/migplan/planner"
	"sluice.dev/lifecycle/notification"
	"sluice.dev/lifecycle/notification/outbox"
	"sluice.dev/lifecycle/podcache"
	"sluice.dev/lifecycle/quota/capacity"
	"sluice.dev/lifecycle/quota/kaifallback"
	"sluice.dev/lifecycle/quota/pending"
	"sluice.dev/lifecycle/quota/shares"
	"sluice.dev/lifecycle/registration"
	"sluice.dev/lifecycle/rendering/admissionpolicy"
	"sluice.dev/lifecycle/rendering/queues"
	"sluice.dev/lifecycle/tenancy/department"
	"sluice.dev/lifecycle/tenancy/nodepool"
	"sluice.dev/lifecycle/tenancy/policyaudit"
	"sluice.dev/lifecycle/tenancy/policystatus"
	"sluice.dev/lifecycle/tenancy/project"
	"sluice.dev/lifecycle/tenancy/rbac"
	"sluice.dev/lifecycle/timelimit/controller"
	"sluice.dev/lifecycle/timelimit/eviction"
	"sluice.dev/lifecycle/timelimit/extension"
	"sluice.dev/lifecycle/timelimit/projectend"
)

// component is a controller or a background task of the manager.
type component interface {
	SetupWithManager(mgr ctrl.Manager) error
}

// tenancy returns the controllers of projects, departments and node pools.
func (s *services) tenancy() []component {
	return []component{
		&nodepool.Reconciler{Client: s.client, Live: s.live, Policies: s.policies, PolicyChanges: s.policyStore},
		&department.Reconciler{Client: s.client},
		&project.Reconciler{
			Client: s.client, Live: s.live, Policies: s.policies, PolicyChanges: s.policyStore, Queues: s.queueWatcher,
			Events: s.events, Clock: s.policyTime, Access: &s.rbac, Pods: s.pods, Notices: s.notices, Stopper: s.stopper,
		},
		&expiry.Reconciler{
			Client: s.client, Live: s.live, Notices: s.notices, MailPaused: s.isMailPaused, Events: s.events, Clock: s.policyTime,
		},
		&policystatus.Reconciler{
			Client: s.client, BuiltIn: s.builtIn, Reports: s.policyStore, Policies: s.policies, Events: s.events,
		},
		&rbac.ProjectReconciler{Manager: s.rbac},
		&rbac.DepartmentReconciler{Manager: s.rbac},
	}
}

// rendering returns the controllers of scheduler queues and admission policies, and the task that compares webhook configurations.
func (s *services) rendering(manifests fs.FS) []component {
	return []component{
		&queues.DepartmentReconciler{Manager: s.queues},
		&queues.NodePoolReconciler{Manager: s.queues},
		&admissionpolicy.Reconciler{
			Client:             s.client,
			Live:               s.live,
			Files:              manifests,
			Parameters:         s.cfg.AdmissionParameters(),
			DenyGPUPodsOutside: s.cfg.GPUPodsOutside == config.Deny,
		},
		&admissionpolicy.PauseReconciler{Client: s.client, Events: s.events, Clock: s.policyTime},
		background{&registration.Monitor{Live: s.live, Files: manifests}},
	}
}

// quota returns the controllers that count GPU quota and react to its lack.
func (s *services) quota() []component {
	return []component{
		&capacity.Reconciler{Client: s.client},
		&pending.Reconciler{Client: s.client, Live: s.live, Pods: s.pods, Clocks: s.workloads, Events: s.events, Clock: s.policyTime},
		&kaifallback.Reconciler{Client: s.client, Live: s.live, Events: s.events},
		withPods{s.excess, s.pods},
		withPods{s.usageRecords, s.pods},
		background{s.usageRecords},
	}
}

// timeLimit returns the controllers that stop workloads at their time limit.
func (s *services) timeLimit() []component {
	limit := s.cfg.Stopping.StopLimiter
	stopLimiter := &controller.StopLimiter{
		Client: s.client, Live: s.live, MaxShare: float64(*limit.Percent) / 100, MaxCount: *limit.Workloads,
	}
	return []component{
		withPods{s.workloads, s.pods},
		&controller.Reconciler{
			Client: s.client, Live: s.live, Workloads: s.workloads, Notices: s.notices, Events: s.events, Clock: s.policyTime,
			Stopper:       s.stopper,
			RetryInterval: s.cfg.Stopping.RetryInterval.Duration,
			StopLimiter:   stopLimiter,
			Activity:      s.usageRecords,
		},
		&projectend.Reconciler{
			Client: s.client, Live: s.live, Kinds: s.client.RESTMapper(), Workloads: s.workloads, Stopper: s.stopper,
			StopLimiter: stopLimiter, Events: s.events, Clock: s.policyTime,
		},
		&extension.Reconciler{Client: s.client, Live: s.live, Notices: s.notices, Events: s.events, Clock: s.policyTime},
	}
}

// notification returns the controllers that send mail, if there is a mail server, and the
// task that deletes old Notices.
func (s *services) notification() []component {
	retention := &outbox.Retention{Client: s.client, Clock: s.policyTime}
	if s.mail == nil {
		return []component{retention}
	}
	return []component{
		retention,
		s.mail,
		&notification.QuotaThresholdReconciler{Client: s.client, Notices: s.notices, Clock: s.policyTime},
		&notification.WeeklySummaryReconciler{Client: s.client, Notices: s.notices, Clock: s.policyTime},
	}
}

// audit returns the task that audits the objects of projects.
func (s *services) audit() []component {
	if s.cfg.Audit.Disabled {
		return nil
	}
	return []component{background{&policyaudit.Auditor{
		Client: s.client, Live: s.live, Policies: s.policies, Clock: s.policyTime, Config: s.cfg.Audit,
	}}}
}

// migPlan returns the controllers of GPUNodes and their MIG layouts.
func (s *services) migPlan() []component {
	return []component{
		&gpunode.Reconciler{Client: s.client},
		&planner.Reconciler{Client: s.client, Live: s.live, Pods: s.pods, Events: s.plannerEvents, Evictions: s.announcer, Announced: s.announced},
	}
}

// eviction returns the controllers that decide which single pods are evicted, and the one that evicts them.
func (s *services) eviction() []component {
	memory := &shares.Reconciler{
		Client: s.client, Live: s.live, Announcer: s.announcer, Announced: s.announced, Notices: s.notices, Events: s.events,
		Clock: s.policyTime,
	}
	return []component{
		withPods{memory, s.pods},
		withPods{&eviction.Reconciler{
			Announcer: s.announcer, Announced: s.announced, Evictor: s.stopper,
			Checks: map[v1alpha1.EndReason]eviction.Check{
				v1alpha1.EndShareExceeded: memory.Check, v1alpha1.EndPreempted: planner.ClaimantCheck(s.client, s.live, s.pods),
				v1alpha1.EndQuotaReclaimed: s.excess.Check,
			},
		}, s.pods},
	}
}

// withPods is a controller that watches the pod cache.
type withPods struct {
	controller interface {
		SetupWithManager(mgr ctrl.Manager, pods *podcache.Store) error
	}
	pods *podcache.Store
}

func (w withPods) SetupWithManager(mgr ctrl.Manager) error {
	if err := w.controller.SetupWithManager(mgr, w.pods); err != nil {
		return fmt.Errorf("%T: %w", w.controller, err)
	}
	return nil
}

// background is a task that runs without requests.
type background struct{ task manager.Runnable }

func (b background) SetupWithManager(mgr ctrl.Manager) error { return mgr.Add(b.task) }
