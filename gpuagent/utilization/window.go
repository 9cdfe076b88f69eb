// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package utilization

import "time"

// buckets is the number of parts of a window that are kept.
const buckets = 30

// window holds the bounds of the use of a device in the last part of its time. Time without measurements
// does not count.
type window struct {
	length time.Duration
	// last is the time of the last measurement, or of the first sample.
	last time.Duration
	// lastLeast and lastMost are the last measurement.
	lastLeast, lastMost float64
	parts               [buckets]part
}

// part is one bucket: the integrals of both bounds over the measured time in it.
type part struct {
	index       int64 // of the time since the first sample, in buckets
	least, most float64
	seconds     float64
}

// setLength sets the window's length. Another length starts a new window.
func (w *window) setLength(length time.Duration) {
	if w.length != length {
		*w = window{length: length, last: w.last, lastLeast: w.lastLeast, lastMost: w.lastMost}
	}
}

func (w *window) index(at time.Duration) int64 { return int64(at / (w.length / buckets)) }

// add adds a measurement, which stands for the time since the last one.
func (w *window) add(at time.Duration, least, most float64) {
	seconds := min(max(at-w.last, minStep), maxStep).Seconds()
	w.last, w.lastLeast, w.lastMost = at, least, most
	index := w.index(at)
	p := &w.parts[((index%buckets)+buckets)%buckets]
	if p.index != index {
		*p = part{index: index}
	}
	p.least += least * seconds
	p.most += most * seconds
	p.seconds += seconds
}

// means returns the means of both bounds over the measured time in the window. The last measurement stands for a
// short window without any: a pause of the measurements is no idle time. It returns 0 before the first one.
func (w *window) means(at time.Duration) (least, most float64) {
	oldest, seconds := w.index(at)-buckets, 0.0
	for i := range w.parts {
		if p := &w.parts[i]; p.index > oldest {
			least, most, seconds = least+p.least, most+p.most, seconds+p.seconds
		}
	}
	if seconds == 0 {
		return w.lastLeast, w.lastMost
	}
	return least / seconds, most / seconds
}
