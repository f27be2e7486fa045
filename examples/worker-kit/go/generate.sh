#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Generates the client, npugraphpb/, from the protocol's own file. NPUGRAPH_SOURCE is the tree of npugraphd's sources.
set -eu
source=${NPUGRAPH_SOURCE:-../../..}
to=npugraph.example/worker/npugraphpb
mkdir -p npugraphpb
protoc -I "$source/proto" --plugin="protoc-gen-go=$(go tool -n protoc-gen-go)" \
    --plugin="protoc-gen-go-grpc=$(go tool -n protoc-gen-go-grpc)" \
    --go_out=npugraphpb --go_opt="paths=source_relative,Mnpugraph.proto=$to" \
    --go-grpc_out=npugraphpb --go-grpc_opt="paths=source_relative,Mnpugraph.proto=$to" npugraph.proto
