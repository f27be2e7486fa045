// SPDX-License-Identifier: Apache-2.0
// Generates the client from the protocol's own file; NPUGRAPH_SOURCE is the tree of npugraphd's sources.
fn main() -> std::io::Result<()> {
    let source = std::env::var("NPUGRAPH_SOURCE").unwrap_or_else(|_| "../../..".into());
    println!("cargo:rerun-if-env-changed=NPUGRAPH_SOURCE");
    tonic_prost_build::configure()
        .build_server(false)
        .compile_protos(&[format!("{source}/proto/npugraph.proto")], &[source])
}
