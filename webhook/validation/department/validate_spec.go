// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package department

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/input"
	"sluice.dev/webhook/validation"
)

// digestParser parses the five fields of cron, without names such as @daily.
var digestParser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

// Validate returns all errors of the department's spec, and warnings of side effects. authority is the writer's. before
// is nil for a new department. now is in policy time.
func Validate(
	before, department *v1alpha1.Department, authority validation.Authority, state ClusterState, now time.Time,
) (field.ErrorList, []string) {
	spec := field.NewPath("spec")
	var old v1alpha1.Department
	if before != nil {
		old = *before
	}
	pools := spec.Child("nodePools")
	members := spec.Child("members")
	errs, warnings := validation.ValidateMembers(members, old.Spec.Members, department.Spec.Members, authority, state.projectOfNamespace)
	moreErrs, moreWarnings := validateNotices(spec.Child("notices"), department, now)
	errs, warnings = append(errs, moreErrs...), append(warnings, moreWarnings...)
	if before != nil {
		moreErrs, moreWarnings = validation.ValidateDepartmentQuota(spec, before, department, state.Projects, state.NodePools)
		errs, warnings = append(errs, moreErrs...), append(warnings, moreWarnings...)
		usage := before.Status.NodePools
		warnings = append(warnings, validation.WarnBelowUsage(pools, before.Spec.NodePools, department.Spec.NodePools, usage)...)
		warnings = append(warnings, warnPodSecurity(spec.Child("podSecurity"), before, department, state.Projects)...)
	}
	return errs, append(warnings, validation.WarnAboveCapacity(pools, before, department, state.Departments, state.NodePools)...)
}

// warnPodSecurity warns of projects with a looser Pod Security level than the department's new one, which applies to
// them as well.
func warnPodSecurity(path *field.Path, before, department *v1alpha1.Department, projects []v1alpha1.Project) []string {
	if before.Spec.PodSecurity == department.Spec.PodSecurity {
		return nil
	}
	var names []string
	for i := range projects {
		p := &projects[i]
		if p.Spec.Department == department.Name && p.Spec.PodSecurity != "" && input.EffectivePodSecurity(p, department) != p.Spec.PodSecurity {
			names = append(names, p.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return []string{fmt.Sprintf("%s: also applies to %s, whose own spec.podSecurity is looser", path, tenancy.JoinLimited(names))}
}

func validateNotices(path *field.Path, department *v1alpha1.Department, now time.Time) (field.ErrorList, []string) {
	notices := department.Spec.Notices
	errs := validateTimeZone(path.Child("timeZone"), notices.TimeZone)
	digestErrs, warnings := validateDigest(path.Child("digest"), notices.Digest, now)
	return append(errs, digestErrs...), warnings
}

func validateTimeZone(path *field.Path, name string) field.ErrorList {
	if name == "" {
		return nil // the schema sets the default
	}
	// Local would be the time zone of lifecycle's machine.
	if _, err := time.LoadLocation(name); err != nil || name == "Local" {
		return field.ErrorList{field.Invalid(path, name, "must be a name of the IANA time zone database, such as Europe/Berlin or UTC")}
	}
	return nil
}

func validateDigest(path *field.Path, expression string, now time.Time) (field.ErrorList, []string) {
	if expression == "" {
		return nil, nil
	}
	const format = `must be five cron fields (minute, hour, day of month, month, day of week), such as "0 8 * * 1-5"`
	// The parser accepts a time zone prefix, which would contradict timeZone.
	if strings.Contains(expression, "=") {
		return field.ErrorList{field.Invalid(path, expression, format+"; timeZone sets the zone")}, nil
	}
	schedule, err := digestParser.Parse(expression)
	if err != nil {
		return field.ErrorList{field.Invalid(path, expression, fmt.Sprintf("%s: %v", format, err))}, nil
	}
	if schedule.Next(now).IsZero() {
		return field.ErrorList{field.Invalid(path, expression, "no date matches: this digest would never be sent")}, nil
	}
	if spec, ok := schedule.(*cron.SpecSchedule); ok && spec.Hour&(1<<2) != 0 {
		return nil, []string{fmt.Sprintf("%s: %q may fall between 02:00 and 03:00, an hour that many time zones skip "+
			"or repeat when clocks change; choose another", path, expression)}
	}
	return nil, nil
}

// administratorFields are the fields of the spec that a department's own administrators change: its people and their
// notices. Only administrators of all departments change the others.
var administratorFields = []string{"contacts", "displayName", "members", "notices"}

// ValidateAdministratorChange denies the changes that the department's own administrators cannot make.
func ValidateAdministratorChange(before, after *v1alpha1.Department) (field.ErrorList, error) {
	changed, err := validation.ChangedFields(before, after)
	if err != nil {
		return nil, err
	}
	var errs field.ErrorList
	for _, change := range changed {
		if name, isSpec := strings.CutPrefix(change.Path, "spec."); !isSpec || !slices.Contains(administratorFields, name) {
			errs = append(errs, field.Forbidden(field.NewPath(change.Path), fmt.Sprintf(
				"only system administrators change it; the department's administrators change spec.%s", strings.Join(administratorFields, ", spec."))))
		}
	}
	return errs, nil
}
