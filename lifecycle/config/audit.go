// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Audit configures the audit, which evaluates all pods and workloads of projects under the policies in force.
type Audit struct {
	// Disabled disables the audit. What it wrote stays. Default false.
	Disabled bool `json:"disabled,omitempty"`
	// Schedule is when the audit runs, in cron's five fields. Default "0 3 * * *".
	Schedule string `json:"schedule,omitempty"`
	// TimeZone is the time zone of the schedule, such as Europe/Berlin. Default UTC.
	TimeZone string `json:"timeZone,omitempty"`
	// PolicyChangeDelay is the time after which the audit runs in addition because the policies in force changed, if they
	// did not change again meanwhile, 10s to 24h. Default 5m.
	PolicyChangeDelay metav1.Duration `json:"policyChangeDelay,omitempty"`
}

// The defaults and limits of the audit.
const (
	defaultAuditSchedule  = "0 3 * * *"
	defaultAuditDelay     = 5 * time.Minute
	minAuditDelay         = 10 * time.Second
	maxAuditDelay         = 24 * time.Hour
	maxAuditScheduleBytes = 256
)

func (a *Audit) setDefaults() {
	a.Schedule, a.TimeZone = cmp.Or(a.Schedule, defaultAuditSchedule), cmp.Or(a.TimeZone, "UTC")
	a.PolicyChangeDelay.Duration = cmp.Or(a.PolicyChangeDelay.Duration, defaultAuditDelay)
}

// auditScheduleParser parses cron's five fields.
var auditScheduleParser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

// Next returns the first time of the schedule after another time; zero if there is none, such as on 30 February.
func (a *Audit) Next(after time.Time) (time.Time, error) {
	switch {
	case len(a.Schedule) > maxAuditScheduleBytes:
		return time.Time{}, fmt.Errorf("%d bytes, of which at most %d are allowed", len(a.Schedule), maxAuditScheduleBytes)
	case strings.Contains(a.Schedule, "TZ="):
		// The parser accepts it as a prefix, and panics without a field behind it.
		return time.Time{}, errors.New("a time zone is set in timeZone")
	}
	zone, err := time.LoadLocation(a.TimeZone)
	if err != nil {
		return time.Time{}, err
	}
	schedule, err := auditScheduleParser.Parse(a.Schedule)
	if err != nil {
		return time.Time{}, err
	}
	return schedule.Next(after.In(zone)), nil
}

func (a *Audit) validate(path *field.Path) (errs field.ErrorList) {
	if _, err := time.LoadLocation(a.TimeZone); err != nil {
		errs = append(errs, field.Invalid(path.Child("timeZone"), a.TimeZone, "must be a time zone such as Europe/Berlin"))
	} else if next, err := a.Next(time.Unix(0, 0)); err != nil {
		errs = append(errs, field.Invalid(path.Child("schedule"), a.Schedule,
			`must be a schedule in cron's five fields such as "0 3 * * *": `+err.Error()))
	} else if next.IsZero() {
		errs = append(errs, field.Invalid(path.Child("schedule"), a.Schedule, "must be a schedule that has a next time"))
	}
	if d := a.PolicyChangeDelay.Duration; d < minAuditDelay || d > maxAuditDelay {
		errs = append(errs, field.Invalid(path.Child("policyChangeDelay"), d.String(), "must be 10s to 24h"))
	}
	return errs
}
