//! Pages and pictures of synthetic runs.

use tollway_report::html::Page;
use tollway_report::plot::{Figure, Picture, PictureOptions};

#[allow(dead_code)]
use crate::synthetic;

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
    Figure::new("A", "b", &[], &runs).write(&path).unwrap();
    let decoder = png::Decoder::new(std::io::BufReader::new(std::fs::File::open(&path).unwrap()));
    let mut reader = decoder.read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    assert_eq!(info.width, 2000);
    // The palette's first colour shows that a curve was drawn.
    assert!(pixels.chunks_exact(3).any(|p| p == [0x1f, 0x77, 0xb4]));
    let _ = std::fs::remove_file(&path);
    let error = Figure::new("A", "b", &[], &runs).write(std::path::Path::new("nowhere/x.png")).unwrap_err();
    assert!(error.to_string().starts_with("cannot write nowhere/x.png"));
}

#[test]
fn a_figure_is_lines_and_text_for_papers() {
    let runs = [synthetic::run(synthetic::Kind::Red, 4)];
    let figure = Figure::new("Four <flows>", "b", &[], &runs);
    let stem = std::env::temp_dir().join(format!("tollway-figure.{}", std::process::id()));
    let formats = vec![Picture::Svg, Picture::Pdf, Picture::Svg];
    let written = figure.write_all(&stem, &PictureOptions { formats, ..PictureOptions::default() }).unwrap();
    assert_eq!(written.len(), 2, "{written:?}");
    let [svg, pdf] = [&written[0], &written[1]].map(|path| std::fs::read(path).unwrap());
    let svg = String::from_utf8(svg).unwrap();
    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
    assert!(svg.contains(">Four &lt;flows&gt;</text>"));
    // Each flow's rate has its colour, and its name at its end in that colour. Lines over time are
    // solid: one piece in each panel.
    for (i, colour) in ["#1f77b4", "#e68a00", "#009e73", "#cc5fa0"].into_iter().enumerate() {
        let name = format!("fill=\"{colour}\" textLength");
        let named =
            svg.lines().filter(|line| line.contains(&name) && line.contains(&format!(">f.{}<", i + 1)));
        assert!(named.count() > 0, "{colour}");
    }
    let pieces = |colour: &str| svg.matches(&format!("stroke=\"{colour}\"")).count();
    assert!((1..=6).contains(&pieces("#e68a00")), "{}", pieces("#e68a00"));
    assert!(pdf.starts_with(b"%PDF-") && pdf.len() < 600_000, "{} bytes", pdf.len());
    let has = |word: &str| pdf.windows(word.len()).any(|part| part == word.as_bytes());
    assert!(has("/FontFile2") && has("/ToUnicode") && has("/MediaBox [0 0 750"));
    written.iter().for_each(|path| std::fs::remove_file(path).unwrap());
    let error = figure.write(std::path::Path::new("x.gif")).unwrap_err();
    assert!(error.to_string().contains("x.gif"), "{error}");
}

#[test]
fn a_picture_for_a_paper_has_its_size_its_rows_and_no_title() {
    let runs = [synthetic::run(synthetic::Kind::Red, 4)];
    let figure = Figure::new("Four flows", "beneath", &[], &runs);
    let stem = std::env::temp_dir().join(format!("tollway-paper-{}", std::process::id()));
    let options = |size, rows: &[usize]| PictureOptions {
        formats: vec![Picture::Svg],
        size: Some(size),
        rows: rows.to_vec(),
        title: Some(String::new()),
    };
    let written = figure.write_all(&stem, &options((480, 200), &[2])).unwrap();
    let svg = std::fs::read_to_string(&written[0]).unwrap();
    std::fs::remove_file(&written[0]).unwrap();
    assert!(svg.contains("width=\"480\" height=\"200\""), "{svg:.200}");
    assert!(svg.contains(">Queue of bottleneck (packets)<") && !svg.contains(">Rate of each"), "{svg}");
    assert!(!svg.contains("Four flows<") && !svg.contains("beneath"), "{svg:.400}");
    let refused = |size, rows| figure.write_all(&stem, &options(size, rows)).unwrap_err().to_string();
    assert_eq!(refused((480, 200), &[9]), "there is no row 9 in the figure `Four flows`");
    assert_eq!(refused((480, 200), &[0]), "there is no row 0 in the figure `Four flows`");
    assert_eq!(refused((480, 80), &[1]), "a picture of 480x80 is too small for its rows");
}

#[test]
fn a_picture_has_at_most_six_panels_and_the_page_has_all() {
    use synthetic::Kind;
    let runs = [Kind::Xcp, Kind::Fifo, Kind::Red].map(|kind| synthetic::run(kind, 4));
    let figure = Figure::new("A", "", &[], &runs);
    let stem = std::env::temp_dir().join(format!("tollway-brief-{}", std::process::id()));
    let options = PictureOptions { formats: vec![Picture::Svg], ..PictureOptions::default() };
    let written = figure.write_all(&stem, &options).unwrap();
    let svg = std::fs::read_to_string(&written[0]).unwrap();
    std::fs::remove_file(&written[0]).unwrap();
    assert_eq!(svg.matches(">time (s)<").count(), 6);
    assert!(svg.contains(">Queue of bottleneck (packets)<") && !svg.contains("Congestion window"));
    // The warm-up of 5 s is shaded in each.
    assert_eq!(svg.matches("<polygon fill=\"#9aa3af\"").count(), 6);
    let html = Page { figure: &figure, runs: &runs, claims: None }.to_html();
    assert!(html.contains("Congestion window") && html.contains("\"warmup\":5.0"));
}

#[test]
fn names_are_where_curves_end_and_a_clipped_peak_is_marked() {
    let level = |until: u32| (0..until).map(|i| (0.1 * f64::from(i), 10.0)).collect::<Vec<_>>();
    let mut peak = level(600);
    peak[..5].iter_mut().for_each(|point| point.1 = 500.0);
    let lines = vec![("whole".to_owned(), peak), ("short".to_owned(), level(200))];
    let svg = Figure::of_lines("A".into(), String::new(), vec![("T", lines)], 60.0).to_svg().unwrap();
    let left = |name: &str| -> f64 {
        let line = svg.lines().find(|line| line.contains(&format!(">{name}<"))).expect("its name");
        line.split("x=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap().parse().unwrap()
    };
    assert!(left("short") < left("whole") / 2.0, "{} {}", left("short"), left("whole"));
    assert!(svg.contains(">T; start peaks at 500<") && left("500") < left("short"));
}

#[test]
fn a_name_has_one_colour_and_changes_are_marked() {
    let mut runs = [synthetic::run(synthetic::Kind::Red, 4)];
    let plot = |y: &str, flows: &str| format!("[[plot]]\ntitle = \"T\"\ny = \"{y}\"\nflows = \"{flows}\"\n");
    let text = plot("rate_mbps", "*") + &plot("rtt_ms", "f.3");
    #[derive(serde::Deserialize)]
    struct Plots {
        plot: Vec<tollway_report::plot::PlotSpec>,
    }
    let specs = toml::from_str::<Plots>(&text).unwrap().plot;
    let svg = |runs: &[_]| Figure::new("A", "", &specs, runs).to_svg().unwrap();
    let plain = svg(&runs);
    // The third colour in both rows, and the first in one.
    let rows: Vec<&str> = plain.split(">T<").collect();
    assert!(rows[1].contains("#1f77b4") && rows[1].contains("#009e73"));
    assert!(!rows[2].contains("#1f77b4") && rows[2].contains("#009e73"));
    runs[0].changes = vec![1.0, 1e9];
    let marked = svg(&runs).matches("stroke=\"#9aa3af\" stroke-width=\"1\"").count();
    assert!(plain.matches("stroke=\"#9aa3af\" stroke-width=\"1\"").count() == 0 && marked > 10, "{marked}");
}

#[test]
fn many_flows_are_a_median_over_faint_lines() {
    let runs = [synthetic::run(synthetic::Kind::Red, 12)];
    let figure = Figure::new("A", "", &[], &runs);
    let html = Page { figure: &figure, runs: &runs, claims: None }.to_html();
    assert!(html.contains("median of 12, with 10 to 90 %") && html.contains("\"faint\":true"));
    let path = std::env::temp_dir().join(format!("tollway-crowd-{}.svg", std::process::id()));
    figure.write(&path).unwrap();
    let svg = std::fs::read_to_string(&path).unwrap();
    let _ = std::fs::remove_file(&path);
    // The pale colour of the first curve, and its band.
    assert!(svg.contains("stroke=\"#c7dded\" stroke-width=\"0.75\""));
    assert!(svg.contains("<polygon fill=\"#1f77b4\" fill-opacity=\"0.2\""));
    assert!(svg.contains(">median of 12, with 10 to 90 %<"));
}

#[test]
fn nothing_to_draw_is_an_empty_figure() {
    assert!(Figure::new("A", "", &[], &[]).is_empty());
}
