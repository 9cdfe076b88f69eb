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

// digestParser is cron's five fields, without names for schedules such as @daily.
var digestParser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

// Validate tells what is wrong with the department, which somebody with that
// authority over it writes, and what is allowed but unwise. Before is the
// department as it was; nil where it is new. The present instant is policy time.
func Validate(before, department *v1alpha1.Department, authority validation.Authority, world ClusterState, now time.Time) (field.ErrorList, []string) {
	spec := field.NewPath("spec")
	var was v1alpha1.Department
	if before != nil {
		was = *before
	}
	pools := spec.Child("nodePools")
	errs, warnings := validation.ValidateMembers(spec.Child("members"), was.Spec.Members, department.Spec.Members, authority, world.projectOfNamespace)
	more, felt := validateNotices(spec.Child("notices"), department, now)
	errs, warnings = append(errs, more...), append(warnings, felt...)
	if before != nil {
		more, felt = validation.ValidateDepartmentQuota(spec, before, department, world.Projects)
		errs, warnings = append(errs, more...), append(warnings, felt...)
		warnings = append(warnings, validation.WarnBelowUsage(pools, before.Spec.NodePools, department.Spec.NodePools, before.Status.NodePools)...)
		warnings = append(warnings, warnPodSecurity(spec.Child("podSecurity"), before, department, world.Projects)...)
	}
	return errs, append(warnings, validation.WarnAboveCapacity(pools, before, department, world.Departments, world.NodePools)...)
}

// warnPodSecurity warns of projects whose own level of Pod Security is looser than
// the department's new one, which holds.
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
		return nil // the schema's default
	}
	// Local is the zone of whatever machine lifecycle happens to run on.
	if _, err := time.LoadLocation(name); err != nil || name == "Local" {
		return field.ErrorList{field.Invalid(path, name, "must be a name of the IANA time zone database, such as Europe/Berlin or UTC")}
	}
	return nil
}

func validateDigest(path *field.Path, expression string, now time.Time) (field.ErrorList, []string) {
	if expression == "" {
		return nil, nil
	}
	const want = `must be five cron fields (minute, hour, day of month, month, day of week), such as "0 8 * * 1-5"`
	// The parser takes a zone in front, which would contradict timeZone.
	if strings.Contains(expression, "=") {
		return field.ErrorList{field.Invalid(path, expression, want+"; timeZone sets the zone")}, nil
	}
	schedule, err := digestParser.Parse(expression)
	if err != nil {
		return field.ErrorList{field.Invalid(path, expression, fmt.Sprintf("%s: %v", want, err))}, nil
	}
	if schedule.Next(now).IsZero() {
		return field.ErrorList{field.Invalid(path, expression, "no date matches: this digest would never be sent")}, nil
	}
	if spec, ok := schedule.(*cron.SpecSchedule); ok && spec.Hour&(1<<2) != 0 {
		return nil, []string{fmt.Sprintf("%s: %q may fall between 02:00 and 03:00, an hour that many time zones skip or repeat when clocks change; choose another", path, expression)}
	}
	return nil, nil
}

// administratorFields are the fields of a department's spec that its own administrators write:
// its people, and how they are told. What a department is given, and what its
// projects must keep, is for those who administer all; so is every field that is
// not here.
var administratorFields = []string{"contacts", "displayName", "members", "notices"}

// ValidateAdministratorChange tells which fields of the change are not for the department's own
// administrators.
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
