package large_jobs_off_hours_test

import data.large_jobs_off_hours

denials_within(gpus, now, from, to) := found if {
	found := large_jobs_off_hours.deny with input.workload as {"type": "train", "gpus": gpus}
		with input.now as now
		with input.department as {"timeZone": "Europe/Berlin", "holidays": [{"from": "2026-12-19", "to": "2027-01-06"}]}
		with input.parameters as {"gpus": 4, "fromHour": from, "toHour": to}
}

denials(gpus, now) := denials_within(gpus, now, 20, 7)

test_small_ones_start_at_any_time if count(denials(3, "2026-11-25T12:00:00+01:00")) == 0

test_large_ones_start_at_night if {
	count(denials(4, "2026-11-25T06:59:59+01:00")) == 0
	count(denials(4, "2026-11-25T07:00:00+01:00")) == 1
	count(denials(4, "2026-11-25T19:59:59+01:00")) == 1
	count(denials(4, "2026-11-25T20:00:00+01:00")) == 0
}

test_at_weekends_and_on_holidays if {
	count(denials(4, "2026-11-28T12:00:00+01:00")) == 0
	count(denials(4, "2026-12-18T12:00:00+01:00")) == 1
	count(denials(4, "2026-12-21T12:00:00+01:00")) == 0
	count(denials(4, "2027-01-06T12:00:00+01:00")) == 0
	count(denials(4, "2027-01-07T12:00:00+01:00")) == 1
}

test_hours_of_one_day if {
	count(denials_within(4, "2026-11-25T12:00:00+01:00", 11, 13)) == 0
	count(denials_within(4, "2026-11-25T13:00:00+01:00", 11, 13)) == 1
}
