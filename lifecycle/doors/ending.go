// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package doors

import "strconv"

// longestGrace is the time to end, in seconds, that a deletion may give a pod
// that says no longer one itself: the longest that core.limits leaves to a pod
// with GPUs, as shipped.
const longestGrace = 3600

// longEnds: a pod that was told to end holds its GPUs until its time to end is
// over, and a later deletion that names no time does not shorten it. Whoever
// deletes a pod with a long time would keep it past every limit, and nobody could
// preempt it.
var longEnds = door{
	name:  "long-ends",
	where: governed,
	rules: rules(on(deleting, "pods"), on(creating, "pods/eviction")),
	checks: []check{{
		expression: `request.operation != 'DELETE' || request.?options.?gracePeriodSeconds.orValue(0) <= ` + longest +
			` || request.options.gracePeriodSeconds <= oldObject.spec.?terminationGracePeriodSeconds.orValue(0)`,
		message: `'gracePeriodSeconds: ' + string(request.options.gracePeriodSeconds) + ': ` + longEnd + `'`,
	}, {
		expression: `request.operation != 'CREATE' || object.?deleteOptions.?gracePeriodSeconds.orValue(0) <= ` + longest,
		message:    `'deleteOptions.gracePeriodSeconds: ' + string(object.deleteOptions.gracePeriodSeconds) + ': ` + longEnd + `'`,
	}},
}

var longest = strconv.Itoa(longestGrace)

const longEnd = `a pod of a project is not deleted with more time to end than an hour, or than it asks for itself; leave the time out`
