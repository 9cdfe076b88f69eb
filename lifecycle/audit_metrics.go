// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"github.com/prometheus/client_golang/prometheus"

	"sluice.dev/api/v1alpha1"
)

var (
	auditViolations = prometheus.NewDesc("sluice_audit_violations",
		"Objects that exist and that a policy would refuse or change if they were created now, as of its last audit.",
		[]string{"policy", "enforcement"}, nil)
	auditLastRun = prometheus.NewDesc("sluice_audit_last_run_timestamp_seconds",
		"Unix time, in policy time, at which the last complete audit started; no series before the first one.", nil, nil)
	auditDuration = prometheus.NewDesc("sluice_audit_duration_seconds", "Duration of the last complete audit.", nil, nil)
	auditObjects  = prometheus.NewDesc("sluice_audit_objects",
		"Objects of the last complete audit, by result: evaluated, unevaluated.", []string{"result"}, nil)
)

// setAudit sets what the last audit found with a policy.
func (g gauges) setAudit(p *v1alpha1.Policy) {
	if p.Status.Audit != nil {
		g.set(auditViolations, float64(p.Status.Audit.Violations), p.Name, string(p.Spec.Enforcement))
	}
}

// setAuditRecord sets the record of the last audit.
func (g gauges) setAuditRecord(parameters *v1alpha1.AdmissionParameters) {
	record := parameters.Status.Audit
	if record == nil || parameters.Name != v1alpha1.AdmissionParametersName {
		return
	}
	g.set(auditLastRun, float64(record.Time.Unix()))
	g.set(auditDuration, float64(record.DurationSeconds))
	g.set(auditObjects, float64(record.Evaluated), "evaluated")
	g.set(auditObjects, float64(record.Unevaluated), "unevaluated")
}
