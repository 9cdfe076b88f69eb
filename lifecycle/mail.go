// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"

	"sluice.dev/api/clock"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/config"
	"sluice.dev/lifecycle/notices"
	"sluice.dev/lifecycle/notices/outbox"
	"sluice.dev/lifecycle/notices/outbox/post"
	"sluice.dev/lifecycle/notices/outbox/threshold"
	"sluice.dev/lifecycle/notices/outbox/weekly"
)

// addMail makes the manager send what was recorded, and record what is told of
// quotas and weeks: these only where there is mail. What was kept long enough goes in
// any case.
func addMail(mgr ctrl.Manager, cfg *config.Config, policyTime clock.Clock) error {
	if err := mgr.Add(&outbox.Retention{Client: mgr.GetClient(), Clock: policyTime}); err != nil {
		return fmt.Errorf("keeping notices: %w", err)
	}
	if cfg.Mail == nil {
		return nil
	}
	sender, err := post.NewSender(cfg.Mail, post.Parts{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Clock: policyTime,
		Events: mgr.GetEventRecorder(v1alpha1.FieldManagerLifecycle),
	})
	if err != nil {
		return err
	}
	if err := sender.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("sending mail: %w", err)
	}
	recorder := notices.Recorder{Client: mgr.GetClient(), Live: mgr.GetAPIReader()}
	full := &threshold.Reconciler{Client: mgr.GetClient(), Notices: recorder, Clock: policyTime}
	if err := full.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("watching quotas: %w", err)
	}
	week := &weekly.Reconciler{Client: mgr.GetClient(), Notices: recorder, Clock: policyTime}
	if err := week.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("summing up weeks: %w", err)
	}
	return nil
}
