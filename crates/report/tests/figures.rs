//! Pages and pictures of made-up runs.

use tollway_report::html::Page;
use tollway_report::plot::{Figure, write_png};

#[allow(dead_code)]
mod synthetic;

#[test]
fn a_page_needs_nothing_beside_itself() {
    let mut run = synthetic::run(synthetic::Kind::Xcp, 4);
    run.variant = "</script><b>".into();
    let runs = [run, synthetic::run(synthetic::Kind::Red, 4)];
    let figure = Figure::new("A <title>", "", &[], &runs);
    let html = Page { figure: &figure, runs: &runs, claims: None }.to_html();
    assert!(html.contains("A &lt;title&gt;") && html.contains("<td>f.4</td>"));
    for outside in ["src=\"http", "<link", "@import"] {
        assert!(!html.contains(outside), "{outside}");
    }
    assert!(html.len() < 600_000, "{} bytes", html.len());
    assert!(html.contains("default-src 'none'"));
    // A name cannot end the script: there are as many ends as scripts.
    let ours = html.rfind("const plots").unwrap();
    assert_eq!(html[ours..].matches("</script>").count(), 1);
}

#[test]
fn a_picture_is_drawn_twice_as_fine_as_a_screen() {
    let runs = [synthetic::run(synthetic::Kind::Xcp, 4)];
    let path = std::env::temp_dir().join(format!("tollway-figure-{}.png", std::process::id()));
    write_png(&Figure::new("A", "b", &[], &runs), &path).unwrap();
    let decoder = png::Decoder::new(std::io::BufReader::new(std::fs::File::open(&path).unwrap()));
    let mut reader = decoder.read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    assert_eq!(info.width, 2000);
    // The first colour of the palette is there: a curve was drawn.
    assert!(pixels.chunks_exact(3).any(|p| p == [0x1f, 0x77, 0xb4]));
    let _ = std::fs::remove_file(&path);
    let error =
        write_png(&Figure::new("A", "b", &[], &runs), std::path::Path::new("nowhere/x.png")).unwrap_err();
    assert!(error.to_string().starts_with("cannot write nowhere/x.png"));
}

#[test]
fn nothing_to_draw_is_an_empty_figure() {
    assert!(Figure::new("A", "", &[], &[]).is_empty());
}
