// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/config"
	"sluice.dev/lifecycle/notification"
	"sluice.dev/lifecycle/notification/delivery"
	"sluice.dev/lifecycle/notification/outbox"
	"sluice.dev/lifecycle/notification/report"
	"sluice.dev/lifecycle/podcache"
	"sluice.dev/lifecycle/quota/usage"
	"sluice.dev/lifecycle/timelimit/controller"
	"sluice.dev/lifecycle/timelimit/extension"
	"sluice.dev/lifecycle/timelimit/owner"
	"sluice.dev/lifecycle/timelimit/suspend"
)

// addTimeLimitControllers makes the manager keep the time of workloads and record their use,
// answer who asks for more time, and end them. It returns the GPU pods, which others may want to know of.
func addTimeLimitControllers(mgr ctrl.Manager, cfg *config.Config, policyTime policytime.Clock, logger logr.Logger) (*podcache.Store, error) {
	pods, err := podcache.New(mgr.GetConfig(), podcache.Settings{DeviceClasses: cfg.DeviceClasses, Logger: logger.WithName("gpupods")})
	if err != nil {
		return nil, fmt.Errorf("watching GPU pods: %w", err)
	}
	if err := mgr.Add(pods); err != nil {
		return nil, fmt.Errorf("watching GPU pods: %w", err)
	}
	grouping := controller.NewWorkloadIndex(pods, owner.NewResolver(mgr.GetAPIReader(), mgr.GetRESTMapper()))
	if err := grouping.SetupWithManager(mgr, pods); err != nil {
		return nil, fmt.Errorf("finding workloads: %w", err)
	}
	keeper := &controller.Reconciler{
		Client:    mgr.GetClient(),
		Live:      mgr.GetAPIReader(),
		Workloads: grouping,
		Stopper:   &suspend.Stopper{Client: mgr.GetClient(), DeleteUnknownKinds: cfg.Stopping.DeleteUnknownKinds},
		Notices:   notification.Recorder{Client: mgr.GetClient(), Live: mgr.GetAPIReader()},
		StopLimiter: &controller.StopLimiter{
			Client: mgr.GetClient(), Live: mgr.GetAPIReader(),
			MaxShare: float64(*cfg.Stopping.StopLimiter.Percent) / 100, MaxCount: *cfg.Stopping.StopLimiter.Workloads,
		},
		Events: mgr.GetEventRecorder(v1alpha1.FieldManagerLifecycle),
		Clock:  policyTime,
	}
	if err := keeper.SetupWithManager(mgr); err != nil {
		return nil, fmt.Errorf("keeping clocks: %w", err)
	}
	if err := mgr.Add(keeper); err != nil {
		return nil, fmt.Errorf("keeping clocks: %w", err)
	}
	used := &usage.Reconciler{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), ClockResolver: grouping, Clock: policyTime}
	if err := used.SetupWithManager(mgr, pods); err != nil {
		return nil, fmt.Errorf("keeping usage records: %w", err)
	}
	if err := mgr.Add(used); err != nil {
		return nil, fmt.Errorf("keeping usage records: %w", err)
	}
	asked := &extension.Reconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Notices: keeper.Notices, Events: keeper.Events, Clock: policyTime,
	}
	if err := asked.SetupWithManager(mgr); err != nil {
		return nil, fmt.Errorf("answering extensions: %w", err)
	}
	return pods, nil
}

// addNotificationControllers makes the manager send what was recorded, and record what is told of
// quotas and weeks: these only where there is mail. What was kept long enough goes in
// any case.
func addNotificationControllers(mgr ctrl.Manager, cfg *config.Config, policyTime policytime.Clock) error {
	if err := mgr.Add(&outbox.Retention{Client: mgr.GetClient(), Clock: policyTime}); err != nil {
		return fmt.Errorf("keeping notices: %w", err)
	}
	if cfg.Mail == nil {
		return nil
	}
	sender, err := delivery.NewSender(cfg.Mail, delivery.Dependencies{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Clock: policyTime,
		Events: mgr.GetEventRecorder(v1alpha1.FieldManagerLifecycle),
	})
	if err != nil {
		return err
	}
	if err := sender.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("sending mail: %w", err)
	}
	recorder := notification.Recorder{Client: mgr.GetClient(), Live: mgr.GetAPIReader()}
	full := &report.QuotaThresholdReconciler{Client: mgr.GetClient(), Notices: recorder, Clock: policyTime}
	if err := full.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("watching quotas: %w", err)
	}
	week := &report.WeeklySummaryReconciler{Client: mgr.GetClient(), Notices: recorder, Clock: policyTime}
	if err := week.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("summing up weeks: %w", err)
	}
	return nil
}
