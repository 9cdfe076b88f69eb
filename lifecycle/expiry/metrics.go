// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"sluice.dev/api/v1alpha1"
)

var (
	stepsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_project_steps_total",
		Help: "Changes of the phase of projects, by department and new phase.",
	}, []string{"department", "phase"})
	renewalsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_project_renewals_total",
		Help: "Renewals of projects, by department and approval: SelfService or Approver.",
	}, []string{"department", "approval"})
	deletionDecisionsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_project_deletion_decisions_total",
		Help: "Decisions on the deletion of projects, by department and decision: Approved or Dismissed.",
	}, []string{"department", "decision"})
)

func init() { //nolint:gochecknoinits // controller-runtime's registry is global
	metrics.Registry.MustRegister(stepsTotal, renewalsTotal, deletionDecisionsTotal)
}

// approvalOf returns who approved a renewal, as a label.
func approvalOf(e *v1alpha1.Extension) string {
	if e.Status.DecidedBy == "" {
		return "SelfService"
	}
	return "Approver"
}

var (
	phaseMetric = prometheus.NewDesc("sluice_project_phase",
		"1 for the phase of each project.", []string{"project", "department", "phase"}, nil)
	nextStepMetric = prometheus.NewDesc("sluice_project_next_step_timestamp_seconds",
		"Unix time of the next step of the expiry of a project, in policy time, by the phase that follows.",
		[]string{"project", "department", "phase"}, nil)
	unsentMetric = prometheus.NewDesc("sluice_project_warnings_unsent",
		"Projects of a department with a warning that is due and was not sent.", []string{"department"}, nil)
	exceptionMetric = prometheus.NewDesc("sluice_project_exceptions",
		"1 for each exception of a project that is in force, by kind: Held or Exempt.", []string{"project", "department", "kind"}, nil)
)

// collector reports the expiry of projects as the cache has it, so that no series outlives its project.
type collector struct{ cache client.Reader }

// collectTimeout bounds the read of the cache.
const collectTimeout = 5 * time.Second

// Describe implements prometheus.Collector.
func (collector) Describe(descriptions chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{phaseMetric, nextStepMetric, unsentMetric, exceptionMetric} {
		descriptions <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(values chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout)
	defer cancel()
	var projects v1alpha1.ProjectList
	if err := c.cache.List(ctx, &projects, client.UnsafeDisableDeepCopy); err != nil {
		return // the cache is not synced, as on a standby replica
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		values <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	unsent := map[string]float64{}
	for i := range projects.Items {
		p := &projects.Items[i]
		s, department := &p.Status, p.Spec.Department
		if s.Phase != "" {
			gauge(phaseMetric, 1, p.Name, department, string(s.Phase))
		}
		if s.Next != nil {
			gauge(nextStepMetric, float64(s.Next.At.Unix()), p.Name, department, string(s.Next.Phase))
		}
		for _, kind := range []string{v1alpha1.ConditionHeld, v1alpha1.ConditionExempt} {
			if meta.IsStatusConditionTrue(s.Conditions, kind) {
				gauge(exceptionMetric, 1, p.Name, department, kind)
			}
		}
		isUnsent := s.Expiry != nil && s.Expiry.UnsentSince != nil || meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionExpiryBlocked)
		if unsent[department] += 0; isUnsent {
			unsent[department]++
		}
	}
	for department, n := range unsent {
		gauge(unsentMetric, n, department)
	}
}
