// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"github.com/prometheus/client_golang/prometheus"
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
)

func init() { //nolint:gochecknoinits // controller-runtime's registry is global
	metrics.Registry.MustRegister(stepsTotal, renewalsTotal)
}

// approvalOf returns who approved a renewal, as a label.
func approvalOf(e *v1alpha1.Extension) string {
	if e.Status.DecidedBy == "" {
		return "SelfService"
	}
	return "Approver"
}
