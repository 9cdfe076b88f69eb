// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package requirements looks whether a cluster has what policies require of it.
//
// Enters: what policies require ([engine.Requirement]), and the API server.
// Leaves: what is missing, with what to do about it, and the settings that
// policies want to know ([Findings]).
//
// A setting is found by walking an object along a path, through lists by index
// and through texts, which are read as YAML. That is done without the cluster
// ([Find]); the objects are read live, since a cache would keep other people's
// objects in memory for the sake of one field.
//
// It never writes, and never reads an object twice in one [Look].
package requirements
