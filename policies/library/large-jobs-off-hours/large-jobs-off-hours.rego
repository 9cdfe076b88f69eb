# METADATA
# title: Large jobs at night, at weekends and on holidays
# description: >-
#   Refuses large training pods in the working hours of the department: from toHour to fromHour o'clock on weekdays, in
#   the department's time zone, except for its holidays. The controller of a Job tries again until the pod may start.
# custom:
#   misses: >-
#     a pod that is queued: it may start later than it was admitted. A pod that runs when the working hours begin continues;
#     maxRuntime limits it
package large_jobs_off_hours

deny contains {
	"msg": sprintf("a pod with %v GPUs starts from %d to %d o'clock on workdays, or at a weekend or on a holiday; it is %s", [
		input.workload.gpus, input.parameters.fromHour, input.parameters.toHour, substring(input.now, 0, 16),
	]),
	"fix": sprintf("create a Job, which tries again until then, or request fewer than %v GPUs", [input.parameters.gpus]),
} if {
	input.workload.type == "train"
	input.workload.gpus >= input.parameters.gpus
	not off_hours
}

off_hours if {
	[hour, _, _] := time.clock(local_time)
	is_night(hour)
}

off_hours if time.weekday(local_time) in {"Saturday", "Sunday"}

off_hours if {
	today := substring(input.now, 0, 10)
	some holiday in input.department.holidays
	today >= holiday.from
	today <= holiday.to
}

local_time := [time.parse_rfc3339_ns(input.now), input.department.timeZone]

# is_night reports whether an hour is between fromHour and toHour, which may be on the next day.
is_night(hour) if {
	input.parameters.fromHour > input.parameters.toHour
	hour >= input.parameters.fromHour
}

is_night(hour) if {
	input.parameters.fromHour > input.parameters.toHour
	hour < input.parameters.toHour
}

is_night(hour) if {
	hour >= input.parameters.fromHour
	hour < input.parameters.toHour
}
