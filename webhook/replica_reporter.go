// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/config"
	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/replica"
	"sluice.dev/webhook/evaluation"
)

// replicaReporter reports in a Lease what is in force in this replica and what it counted. It works beside the requests, and none
// of them waits for it.
type replicaReporter struct {
	client  client.Client
	engine  *engine.Engine
	counter *replica.Counter
	logger  logr.Logger

	// lease is the name of the Lease, "" before it exists.
	lease string
	// urgent is the part of the last written report that does not wait for the next renewal, and renewal the time of that.
	urgent  string
	renewal time.Time
}

// reportInterval is the time between two checks whether to report, in machine time.
const reportInterval = time.Second

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (r *replicaReporter) NeedLeaderElection() bool { return false }

// Start reports until ctx ends, and then once more.
func (r *replicaReporter) Start(ctx context.Context) error {
	ticker := time.NewTicker(reportInterval) //nolint:forbidigo // machine time: the interval of reports
	defer ticker.Stop()
	for {
		if err := r.step(ctx); err != nil && ctx.Err() == nil {
			r.logger.Error(err, "Failed to report the state of this replica", "lease", r.lease)
		}
		select {
		case <-ctx.Done():
			final, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
			defer cancel()
			if err := r.end(final); err != nil {
				r.logger.Error(err, "Failed to report the end of this replica", "lease", r.lease)
			}
			return nil
		case <-ticker.C:
		}
	}
}

// step reports if it is time to or if the policies changed.
func (r *replicaReporter) step(ctx context.Context) error {
	set, err := r.engine.Current()
	if err != nil {
		return nil //nolint:nilerr // the policies are not loaded yet
	}
	evaluation.StartViolations(set.Versions())
	now := policytime.MachineNow()
	report := replica.NewReport(config.Version, set.Versions(), nil)
	report.Missing = replica.MissingOf(set)
	urgent, err := replica.Encode(report)
	if err != nil {
		return err
	}
	if urgent == r.urgent && now.Before(r.renewal) {
		return nil
	}
	report.Violations = r.counter.Violations(set.Versions())
	// A fifth more or less, so that replicas that start together do not stay together.
	r.renewal = now.Add(replica.RenewInterval*4/5 + rand.N(replica.RenewInterval*2/5)) //nolint:gosec // no secret
	if err := r.write(ctx, report); err != nil {
		return err
	}
	r.urgent = urgent
	return nil
}

// end writes the last report, so that the replica does not count as live until its Lease expires.
func (r *replicaReporter) end(ctx context.Context) error {
	set, err := r.engine.Current()
	if err != nil || r.lease == "" {
		return nil //nolint:nilerr // there is nothing to report
	}
	report := replica.NewReport(config.Version, set.Versions(), r.counter.Violations(set.Versions()))
	report.Ended = true
	return r.write(ctx, report)
}

// write renews the Lease, or creates it. Once the Lease was deleted, lifecycle has included what it reported, and the replica
// starts again with another name.
func (r *replicaReporter) write(ctx context.Context, report replica.Report) error {
	text, err := replica.Encode(report)
	if err != nil {
		return err
	}
	now := metav1.NewMicroTime(policytime.MachineNow())
	if r.lease != "" {
		err := r.patch(ctx, text, now)
		if !apierrors.IsNotFound(err) {
			return err
		}
		r.lease = ""
		r.urgent = ""
		r.counter.Reset()
		return fmt.Errorf("the lease was deleted; another one follows: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		host = ""
	}
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v1alpha1.SystemNamespace, Name: replica.NewLeaseName(host), Labels: replica.Labels(),
			Annotations: map[string]string{v1alpha1.ReplicaReportAnnotation: text},
		},
		Spec: coordinationv1.LeaseSpec{
			LeaseDurationSeconds: new(int32(replica.LeaseDuration / time.Second)), AcquireTime: &now, RenewTime: &now,
		},
	}
	lease.Spec.HolderIdentity = &lease.Name
	if err := r.client.Create(ctx, lease); err != nil {
		return fmt.Errorf("create lease: %w", err)
	}
	r.lease = lease.Name
	return nil
}

func (r *replicaReporter) patch(ctx context.Context, text string, now metav1.MicroTime) error {
	change, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{v1alpha1.ReplicaReportAnnotation: text}},
		"spec":     map[string]any{"renewTime": now},
	})
	if err != nil {
		return fmt.Errorf("encode lease: %w", err)
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: r.lease}}
	if err := r.client.Patch(ctx, lease, client.RawPatch(types.MergePatchType, change)); err != nil {
		return fmt.Errorf("renew lease: %w", err)
	}
	return nil
}
