// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
)

// How long a mail waits at which the server said that it takes nothing now, after it
// had heard whom the mail is for; twice that each time. All others wait for the server
// alone, so that one mail that brings it about holds them up ever more seldom.
const (
	firstBehind   = time.Minute
	longestBehind = 30 * time.Minute
)

// behind is when n is tried again that failed, where down is when the server is.
func (s *Sender) behind(now Moment, n *v1alpha1.Notice, failed error, down time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	var failure *Failure
	if !errors.As(failed, &failure) || failure.Fault != Server || !failure.Late {
		delete(s.late, n.UID)
		return down
	}
	if s.late == nil {
		s.late = map[types.UID]int{}
	}
	s.late[n.UID]++
	l := Limits{FirstRetry: firstBehind, LongestRetry: longestBehind}
	if at := now.Machine.Add(l.Retry(n.Name, s.late[n.UID])); at.After(down) {
		return at
	}
	return down
}
