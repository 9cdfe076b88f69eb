// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1 "k8s.io/client-go/applyconfigurations/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/replica"
	"sluice.dev/webhook/evaluation"
)

// replicaReporter writes what this replica counted into a Lease. It works beside the requests, and none of them waits for it.
type replicaReporter struct {
	client  client.Client
	engine  *engine.Engine
	counter *replica.Counter
	logger  logr.Logger

	// lease is the name of the Lease, and written its report.
	lease, written string
}

// reportInterval is the time between two reports, in machine time.
const reportInterval = time.Minute

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (r *replicaReporter) NeedLeaderElection() bool { return false }

// Start reports until ctx ends, and then once more.
func (r *replicaReporter) Start(ctx context.Context) error {
	ticker := time.NewTicker(reportInterval) //nolint:forbidigo // machine time: the interval of reports
	defer ticker.Stop()
	for {
		r.report(ctx)
		select {
		case <-ctx.Done():
			final, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
			defer cancel()
			r.report(final)
			return nil
		case <-ticker.C:
		}
	}
}

// report writes the counts if they changed.
func (r *replicaReporter) report(ctx context.Context) {
	set, err := r.engine.Current()
	if err != nil {
		return // the policies are not loaded yet
	}
	evaluation.StartViolations(set.Versions())
	report, err := r.counter.Report(set.Versions())
	if err == nil && report != r.written {
		err = r.write(ctx, report)
	}
	if err != nil && ctx.Err() == nil {
		r.logger.Error(err, "Failed to report the counts of policies, retrying", "lease", r.lease, "interval", reportInterval)
	}
}

// write applies the Lease, which creates it if it does not exist.
func (r *replicaReporter) write(ctx context.Context, report string) error {
	if r.lease == "" {
		host, _ := os.Hostname() // a name without it is as good
		r.lease = replica.NewLeaseName(host)
	}
	lease := coordinationv1.Lease(r.lease, v1alpha1.SystemNamespace).
		WithLabels(replica.Labels()).
		WithAnnotations(map[string]string{v1alpha1.ReplicaReportAnnotation: report}).
		WithSpec(coordinationv1.LeaseSpec().WithHolderIdentity(r.lease).WithRenewTime(metav1.NewMicroTime(policytime.MachineNow())))
	if err := r.client.Apply(ctx, lease, client.FieldOwner("sluice-webhook"), client.ForceOwnership); err != nil {
		return fmt.Errorf("apply lease: %w", err)
	}
	r.written = report
	return nil
}
