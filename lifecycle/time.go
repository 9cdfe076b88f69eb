// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"sluice.dev/api/clock"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/clocks"
	"sluice.dev/lifecycle/config"
	"sluice.dev/lifecycle/extension"
	"sluice.dev/lifecycle/gpupods"
	"sluice.dev/lifecycle/notices"
	"sluice.dev/lifecycle/roots"
	"sluice.dev/lifecycle/stopping"
	"sluice.dev/lifecycle/usage"
)

// addClocks makes the manager keep the time of workloads and record their use,
// answer who asks for more time, and end them. It returns the GPU pods, which others may want to know of.
func addClocks(mgr ctrl.Manager, cfg *config.Config, policyTime clock.Clock, logger logr.Logger) (*gpupods.Store, error) {
	pods, err := gpupods.New(mgr.GetConfig(), gpupods.Settings{DeviceClasses: cfg.DeviceClasses, Logger: logger.WithName("gpupods")})
	if err != nil {
		return nil, fmt.Errorf("watching GPU pods: %w", err)
	}
	if err := mgr.Add(pods); err != nil {
		return nil, fmt.Errorf("watching GPU pods: %w", err)
	}
	grouping := clocks.NewGrouping(pods, roots.New(mgr.GetAPIReader(), mgr.GetRESTMapper()))
	if err := grouping.SetupWithManager(mgr, pods); err != nil {
		return nil, fmt.Errorf("finding workloads: %w", err)
	}
	keeper := &clocks.Reconciler{
		Client:   mgr.GetClient(),
		Live:     mgr.GetAPIReader(),
		Grouping: grouping,
		Stopper:  &stopping.Stopper{Client: mgr.GetClient(), DeleteUnknown: cfg.Stopping.DeleteUnknownKinds},
		Notices:  notices.Recorder{Client: mgr.GetClient(), Live: mgr.GetAPIReader()},
		Brake: &clocks.Brake{
			Client: mgr.GetClient(), Live: mgr.GetAPIReader(),
			Share: float64(*cfg.Stopping.Brake.Percent) / 100, Number: *cfg.Stopping.Brake.Workloads,
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
	used := &usage.Reconciler{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Workloads: grouping, Clock: policyTime}
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
